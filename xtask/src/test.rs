//! The test command of the README: every test of the workspace, with the tools it needs.

use anyhow::Result;

use crate::run::{cargo, run as command};
use crate::tools;

/// Runs `cargo test` over the workspace. `arguments` go to it as they are.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    tools::check()?;
    let mut tests = cargo(&["test", "--workspace", "--no-fail-fast", "--quiet"]);
    command(tests.args(arguments))
}
