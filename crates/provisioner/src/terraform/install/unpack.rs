//! Unpacks the program from a release archive.

use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use super::InstallError;

const PROGRAM: &str = "terraform";

/// The program has about 100 megabytes.
const MAX_PROGRAM_BYTES: u64 = 2 * 1024 * 1024 * 1024;

/// Writes the program to `to`. Blocks.
pub(super) fn program(archive: &Path, to: &Path) -> Result<(), InstallError> {
    let disk = |reason| InstallError::Disk { path: to.to_owned(), reason };
    let broken = |error: &dyn std::fmt::Display| {
        InstallError::Archive(format!("the archive of the release cannot be unpacked ({error})"))
    };
    let file = std::fs::File::open(archive)
        .map_err(|reason| InstallError::Disk { path: archive.to_owned(), reason })?;
    let mut archive = zip::ZipArchive::new(file).map_err(|error| broken(&error))?;
    let entry = archive.by_name(PROGRAM).map_err(|error| broken(&error))?;
    let mut program = std::fs::OpenOptions::new();
    let mut program = program.write(true).create_new(true).mode(0o755).open(to).map_err(disk)?;
    let written = std::io::copy(&mut entry.take(MAX_PROGRAM_BYTES + 1), &mut program).map_err(disk)?;
    if written > MAX_PROGRAM_BYTES {
        return Err(broken(&"its program is too large"));
    }
    program.sync_all().map_err(disk)
}
