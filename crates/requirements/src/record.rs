//! The record of skipped tests: one line a skip, `REQUIREMENT<TAB>TEST`.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::panic::Location;
use std::path::Path;

use crate::{Requirement, in_ci};

/// Names the file to which skips are appended. Without it they are written to standard error.
pub const RECORD_VARIABLE: &str = "CODER_TEST_SKIP_RECORD";

/// Which tests were skipped, by the name of what was missing.
pub type Skips = BTreeMap<String, Vec<String>>;

/// Records that the running test is skipped, or fails it where it must not be.
#[track_caller]
pub(crate) fn skip(requirement: Requirement) {
    let place = Location::caller();
    // The harness names its threads after the tests.
    let thread = std::thread::current();
    let test = match thread.name() {
        Some(name) if name != "main" && !name.starts_with("tokio-") => name.to_owned(),
        _ => format!("{}:{}", place.file(), place.line()),
    };
    assert!(
        !in_ci() || requirement.missing_in_ci().is_some(),
        "{test} needs {}, which must be there with CI=true: {}",
        requirement.name(),
        requirement.how_to_get(),
    );
    let line = format!("{}\t{test}\n", requirement.name());
    let written = match std::env::var_os(RECORD_VARIABLE) {
        // Short lines that are appended in one call do not mix with those of other processes.
        Some(path) => OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .and_then(|mut file| file.write_all(line.as_bytes())),
        // Written to the descriptor: the harness captures what the print macros write.
        None => io::stderr().write_all(
            format!("SKIPPED: {test} needs {}: {}\n", requirement.name(), requirement.how_to_get())
                .as_bytes(),
        ),
    };
    written.expect("a skip can be recorded");
}

/// Reads a record. No file means that nothing was skipped. A test that asks twice counts once.
///
/// # Errors
/// When the file cannot be read.
pub fn read(path: &Path) -> io::Result<Skips> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error),
    };
    let mut skips = Skips::new();
    for (requirement, test) in text.lines().filter_map(|line| line.split_once('\t')) {
        let tests = skips.entry(requirement.to_owned()).or_default();
        if !tests.iter().any(|known| known == test) {
            tests.push(test.to_owned());
        }
    }
    Ok(skips)
}
