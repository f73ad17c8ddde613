//! The figures of `docs/performance.md`, measured on this machine with the release binary.

use anyhow::{Context, Result};

use crate::run::{cargo, run as command, target};
use crate::{dist, postgres};

/// Measures what `names` asks for, or everything.
pub(crate) fn run(names: &[String]) -> Result<()> {
    let binary = dist::run()?;
    let packages = ["--package", "coder-benches", "--package", "coder-testkit"];
    command(cargo(&["build", "--release", "--bins"]).args(packages))?;
    let postgres = postgres::for_tests()?;
    let mut bench = std::process::Command::new(target().join("release/coder-benches"));
    bench.arg(binary).arg(target().join("bench")).args(names);
    if let Some(postgres) = &postgres {
        bench.env("CODER_TEST_PG_URL", postgres.url());
    }
    command(&mut bench).context("measuring")
}
