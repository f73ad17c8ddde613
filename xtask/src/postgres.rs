//! The Postgres that tests and measurements run against.

use anyhow::Result;

/// A server of its own, ended with this value.
pub(crate) struct Postgres;

impl Postgres {
    pub(crate) fn url(&self) -> &str {
        ""
    }
}

pub(crate) fn for_tests() -> Result<Option<Postgres>> {
    Ok(None)
}
