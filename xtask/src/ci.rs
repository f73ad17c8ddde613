//! The whole of continuous integration, in the order that fails fastest.

use anyhow::Result;

use crate::run::{cargo, run as command};
use crate::{codegen, test, tidy};

/// Runs every check.
pub(crate) fn run() -> Result<()> {
    run_step("format", || command(&mut cargo(&["fmt", "--all", "--check"])))?;
    run_step("generated code", || codegen::run(true))?;
    run_step("house rules", tidy::run)?;
    run_step("lints", || {
        command(&mut cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--quiet",
            "--",
            "--deny",
            "warnings",
        ]))
    })?;
    run_step("tests", || test::run(&[]))
}

fn run_step(name: &str, step: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = std::time::Instant::now();
    println!("== {name}");
    step()?;
    println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
