//! The Postgres that tests and measurements run against: a given one, or one of our own that ends with us.

use anyhow::Result;
use coder_requirements::{Requirement, is_there};
use coder_store::testing::{PostgresServer, URL_VARIABLE};

/// A server, ended with this value when it is our own.
pub(crate) struct Postgres {
    url: String,
    _server: Option<PostgresServer>,
}

impl Postgres {
    /// Where it listens.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// Finds or starts one; none when Postgres is not installed.
pub(crate) fn for_tests() -> Result<Option<Postgres>> {
    if let Ok(url) = std::env::var(URL_VARIABLE) {
        return Ok(Some(Postgres { url, _server: None }));
    }
    if !is_there(Requirement::Postgres) {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let server = runtime.block_on(PostgresServer::start());
    Ok(server.map(|server| Postgres { url: server.url(), _server: Some(server) }))
}
