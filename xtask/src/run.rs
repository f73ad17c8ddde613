//! Starting other programs: the command is shown, a failure names it.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in the workspace").to_path_buf()
}

/// Where cargo puts artefacts.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// `cargo` in the workspace's root.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs a command to its end and fails when it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", show(command));
    let status = command.status().with_context(|| format!("cannot start {}", show(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", show(command));
    }
    Ok(())
}

/// Runs a command and returns what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {}", show(command)))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", show(command), output.status, stderr.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} wrote invalid UTF-8", show(command)))
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
