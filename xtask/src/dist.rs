//! The static, stripped binaries that people and workspaces download.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::run::{self, cargo, output, root, target};

/// The architectures of the slim build: the name in downloads, and the target. The machine's own needs no target.
const SLIM: [(&str, &str); 2] =
    [("amd64", "x86_64-unknown-linux-gnu"), ("arm64", "aarch64-unknown-linux-gnu")];

/// Flags of the last compilation. As general rust flags the first would break procedural macros on the GNU target.
///
/// Packed relocations are a hundredth of the usual ones, which make up 2 MiB of the program and of the memory of each of
/// its processes. The C library applies them since glibc 2.36.
const LINK_FLAGS: [&str; 4] =
    ["-C", "target-feature=+crt-static", "-C", "link-arg=-Wl,-z,pack-relative-relocs"];

/// Builds `target/dist/coder` and returns its path.
pub(crate) fn run_build() -> Result<PathBuf> {
    let mut build = cargo(&["rustc", "--release", "--package", "coder", "--bin", "coder", "--"]);
    run::run(build.args(LINK_FLAGS))?;
    keep(&target().join("release/coder"), "coder")
}

/// Builds `target/dist/coder-linux-<arch>`, without server, database and provisioner: what workspaces download from a server that it lies
/// beside. None when the toolchain cannot build for the architecture.
fn run_slim(name: &str, triple: &str) -> Result<Option<PathBuf>> {
    let is_own = triple.starts_with(std::env::consts::ARCH);
    if !is_own && !can_build(triple) {
        println!("no slim build for {name}: install the target {triple} and a linker for it");
        return Ok(None);
    }
    // A directory of its own: the same crates have other features here.
    let folder = target().join("slim");
    let mut build =
        cargo(&["rustc", "--release", "--package", "coder", "--bin", "coder", "--no-default-features"]);
    build.args(["--target", triple, "--"]).args(LINK_FLAGS);
    // Workspaces download it, and each agent has its code in memory.
    build.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s");
    run::run(build.env("CARGO_TARGET_DIR", &folder))?;
    let built = folder.join(triple).join("release/coder");
    keep(&built, &format!("coder-linux-{name}")).map(Some)
}

/// Whether the standard library and a linker for a target are there.
fn can_build(triple: &str) -> bool {
    let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
    let has_linker = std::env::var_os(linker).is_some();
    let library =
        std::process::Command::new("rustc").args(["--print", "target-libdir", "--target", triple]).output();
    let has_library = library.is_ok_and(|output| {
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success() && Path::new(&path).is_dir()
    });
    has_linker && has_library
}

/// Puts a binary into the folder of finished ones.
fn keep(built: &Path, name: &str) -> Result<PathBuf> {
    let folder = target().join("dist");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    // Copied to the side and renamed, so that a running older copy does not prevent it.
    let (fresh, kept) = (folder.join(format!("{name}.new")), folder.join(name));
    std::fs::copy(built, &fresh).with_context(|| format!("cannot copy {}", built.display()))?;
    std::fs::rename(&fresh, &kept)?;
    Ok(kept)
}

/// Builds, and checks that the result needs no dynamic loader and has nothing in it that only debuggers read.
pub(crate) fn run() -> Result<PathBuf> {
    let binary = run_build()?;
    let size = check(&binary)?;
    let version = output(std::process::Command::new(&binary).arg("version").current_dir(root()))?;
    println!("{} MiB, {}", size, version.lines().next().unwrap_or_default());
    for (name, triple) in SLIM {
        if let Some(slim) = run_slim(name, triple)? {
            println!("{} MiB, {}", check(&slim)?, slim.display());
        }
    }
    Ok(binary)
}

/// Checks a finished binary. Its size in MiB.
fn check(binary: &Path) -> Result<usize> {
    let bytes = std::fs::read(binary)?;
    if has_interpreter(&bytes) {
        bail!("{} is dynamically linked", binary.display());
    }
    if has_symbols(&bytes) {
        bail!("{} is not stripped: see the release profile in Cargo.toml", binary.display());
    }
    Ok(bytes.len() / 1024 / 1024)
}

/// The architecture of a program, as container images name it.
pub(crate) fn architecture(elf: &[u8]) -> Option<&'static str> {
    match (elf.starts_with(b"\x7fELF"), number(elf, 18, 2)) {
        (true, 62) => Some("amd64"),
        (true, 183) => Some("arm64"),
        _ => None,
    }
}

/// Whether an ELF file names a dynamic loader (program header of type 3).
pub(crate) fn has_interpreter(elf: &[u8]) -> bool {
    let (offset, size, count) = (number(elf, 32, 8), number(elf, 54, 2), number(elf, 56, 2));
    (0..count).any(|index| number(elf, offset + index * size, 4) == 3)
}

/// Whether it has a table of symbols (section header of type 2).
fn has_symbols(elf: &[u8]) -> bool {
    let (offset, size, count) = (number(elf, 40, 8), number(elf, 58, 2), number(elf, 60, 2));
    (0..count).any(|index| number(elf, offset + index * size + 4, 4) == 2)
}

/// A little-endian number; zero beyond the end.
fn number(elf: &[u8], at: usize, size: usize) -> usize {
    elf.get(at..at + size)
        .map_or(0, |bytes| bytes.iter().rev().fold(0, |number, byte| (number << 8) | usize::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dynamic_program_with_symbols_is_recognised() {
        let own = std::fs::read(std::env::current_exe().expect("a path")).expect("readable");
        assert!(has_interpreter(&own), "test programs are linked dynamically");
        assert!(has_symbols(&own), "and not stripped");
        assert!(!has_interpreter(b"\x7fELF") && !has_symbols(b"\x7fELF"));
        let wanted = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        assert_eq!(architecture(&own), Some(wanted));
        assert_eq!((architecture(b"\x7fELF"), architecture(b"#!/bin/sh")), (None, None));
    }
}
