//! The programs that tests need besides Rust.

use anyhow::{Result, bail};
use coder_requirements::{Requirement, in_ci, is_there};

/// With `CI=true` fails when something is missing that no test may be skipped for.
pub(crate) fn check() -> Result<()> {
    let needed = Requirement::ALL.into_iter().filter(|requirement| requirement.missing_in_ci().is_none());
    let missing: Vec<_> = needed.filter(|requirement| !is_there(*requirement)).collect();
    if in_ci() && !missing.is_empty() {
        let advice = missing.iter().map(|requirement| requirement.how_to_get());
        bail!("with CI=true every tool must be there: {}", advice.collect::<Vec<_>>().join("; "));
    }
    Ok(())
}
