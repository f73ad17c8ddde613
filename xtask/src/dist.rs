//! The static, stripped binary that people download.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::run::{self, cargo, output, root, target};

/// Builds `target/dist/coder` and returns its path.
///
/// The flag is given to the last compilation only: as general rust flags it would break procedural macros on the
/// GNU target.
pub(crate) fn run_build() -> Result<PathBuf> {
    let mut build = cargo(&["rustc", "--release", "--package", "coder", "--bin", "coder", "--"]);
    run::run(build.args(["-C", "target-feature=+crt-static"]))?;
    let folder = target().join("dist");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let binary = folder.join("coder");
    let built = target().join("release/coder");
    // Copied to the side and renamed, so that a running older copy is no obstacle.
    let fresh = folder.join("coder.new");
    std::fs::copy(&built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::rename(&fresh, &binary)?;
    Ok(binary)
}

/// Builds, and checks that the result needs no dynamic loader.
pub(crate) fn run() -> Result<PathBuf> {
    let binary = run_build()?;
    let bytes = std::fs::read(&binary)?;
    if has_interpreter(&bytes) {
        bail!("{} is dynamically linked", binary.display());
    }
    let size = bytes.len() / 1024 / 1024;
    let version = output(std::process::Command::new(&binary).arg("version").current_dir(root()))?;
    println!("{} MiB, {}", size, version.lines().next().unwrap_or_default());
    Ok(binary)
}

/// Whether an ELF file names a dynamic loader (program header of type 3).
fn has_interpreter(elf: &[u8]) -> bool {
    let number = |at: usize, size: usize| -> usize {
        elf.get(at..at + size)
            .map_or(0, |bytes| bytes.iter().rev().fold(0, |n, byte| (n << 8) | usize::from(*byte)))
    };
    let (offset, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|index| number(offset + index * size, 4) == 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_is_recognised() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        assert!(has_interpreter(&own), "test programs are linked dynamically");
        assert!(!has_interpreter(b"\x7fELF"));
    }
}
