//! The test command of the README: every test of the workspace, with the tools it needs.

use anyhow::Result;
use coder_store::testing::URL_VARIABLE;

use crate::run::{cargo, run as command};
use crate::{postgres, tools};

/// Runs `cargo test` over the workspace with one Postgres for all of it. `arguments`, if any, choose what runs.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    tools::check()?;
    let postgres = postgres::for_tests()?;
    let mut tests = cargo(&["test", "--no-fail-fast", "--quiet"]);
    if arguments.is_empty() {
        tests.arg("--workspace");
    }
    if let Some(postgres) = &postgres {
        tests.env(URL_VARIABLE, postgres.url());
    }
    command(tests.args(arguments))
}
