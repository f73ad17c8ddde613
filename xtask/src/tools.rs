//! The programs that tests need besides Rust, and what is skipped without them.

use std::path::PathBuf;

use anyhow::{Result, bail};

/// A program from the `PATH`.
struct Tool {
    program: &'static str,
    what_for: &'static str,
    install: &'static str,
}

const TOOLS: &[Tool] = &[
    Tool { program: "go", what_for: "the interop tests against the Go libraries", install: "package golang" },
    Tool {
        program: "terraform",
        what_for: "every test that runs Terraform",
        install: "Terraform 1.1 or newer",
    },
    Tool {
        program: "initdb",
        what_for: "every test on Postgres",
        install: "package postgresql, its bin in PATH",
    },
];

/// Reports what is missing; with `CI=true` that is a failure.
pub(crate) fn check() -> Result<()> {
    let missing: Vec<_> = TOOLS.iter().filter(|tool| find(tool.program).is_none()).collect();
    for tool in &missing {
        println!(
            "SKIPPED: {} is not in PATH, so {} do not run; install {}",
            tool.program, tool.what_for, tool.install
        );
    }
    if !missing.is_empty() && in_ci() {
        bail!("with CI=true every tool must be there");
    }
    Ok(())
}

/// Whether this run decides about a landing.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

/// Looks a program up in the `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}
