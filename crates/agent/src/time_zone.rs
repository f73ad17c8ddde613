//! The time zone of the agent, in which schedules are meant: the one that `TZ` names, else that of the machine. It is read from the
//! machine's files, because a static program has no other way to them.

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use jiff::tz::TimeZone;

const LOCALTIME_PATH: &str = "/etc/localtime";
const ZONEINFO_PATH: &str = "/usr/share/zoneinfo";
/// The largest file of the database has 4 KiB.
const MAX_BYTES: u64 = 256 << 10;

/// The zone, and the problem when `TZ` names one that is not known; it is UTC then, as in every other program.
pub(crate) fn find(variable: Option<OsString>) -> (TimeZone, Option<String>) {
    find_in(variable, Path::new(LOCALTIME_PATH), Path::new(ZONEINFO_PATH))
}

fn find_in(variable: Option<OsString>, machine: &Path, database: &Path) -> (TimeZone, Option<String>) {
    let Some(value) = variable else {
        return (read(machine).unwrap_or(TimeZone::UTC), None);
    };
    let text = value.to_string_lossy();
    // The colon says that a name of the database follows, and not a rule such as CET-1CEST.
    let name = text.strip_prefix(':').unwrap_or(&text);
    if name.is_empty() {
        return (TimeZone::UTC, None);
    }
    let path = if name.starts_with('/') { PathBuf::from(name) } else { database.join(name) };
    match read(&path).or_else(|| TimeZone::posix(name).ok()) {
        Some(zone) => (zone, None),
        None if matches!(name, "UTC" | "Etc/UTC" | "GMT") => (TimeZone::UTC, None),
        None => (
            TimeZone::UTC,
            Some(format!("TZ names the time zone {name:?}, which this machine does not know")),
        ),
    }
}

fn read(path: &Path) -> Option<TimeZone> {
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    TimeZone::tzif("Local", &bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    /// A file of the database with one rule and no history (RFC 8536).
    fn zone_file(rule: &str) -> Vec<u8> {
        let mut part = b"TZif2".to_vec();
        part.extend([0; 15]);
        // No leap seconds, no transitions, one type of time, one byte of its name.
        for count in [0_u32, 0, 0, 0, 1, 1] {
            part.extend(count.to_be_bytes());
        }
        part.extend([0; 7]);
        let mut file = part.clone();
        file.extend(part);
        file.extend(format!("\n{rule}\n").bytes());
        file
    }

    #[test]
    fn variable_is_stronger_than_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        let machine = folder.path().join("localtime");
        std::fs::write(&machine, zone_file("<+05>-5")).unwrap();
        std::fs::create_dir(folder.path().join("Area")).unwrap();
        std::fs::write(folder.path().join("Area/City"), zone_file("CET-1CEST,M3.5.0,M10.5.0/3")).unwrap();
        std::fs::write(folder.path().join("broken"), "no zone").unwrap();
        let check = |variable: Option<&str>, want: &str, is_known: bool| {
            let (zone, problem) = find_in(variable.map(OsString::from), &machine, folder.path());
            let summer: Timestamp = "2026-07-01T12:00:00Z".parse().unwrap();
            let offset = summer.to_zoned(zone).offset().to_string();
            assert_eq!((offset.as_str(), problem.is_none()), (want, is_known), "{variable:?}");
        };
        check(None, "+05", true);
        check(Some("Area/City"), "+02", true);
        check(Some(":Area/City"), "+02", true);
        check(Some("EST5EDT,M3.2.0,M11.1.0"), "-04", true);
        check(Some(""), "+00", true);
        check(Some("UTC"), "+00", true);
        check(Some("Area/Nowhere"), "+00", false);
        check(Some("broken"), "+00", false);
    }

    #[test]
    fn machine_without_a_zone_has_universal_time() {
        let (zone, problem) = find_in(None, Path::new("/nonexistent"), Path::new("/nonexistent"));
        assert!(zone == TimeZone::UTC && problem.is_none());
    }
}
