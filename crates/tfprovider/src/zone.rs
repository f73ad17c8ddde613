//! The names of the time zone database.

/// Every name, sorted.
const ZONES: &str = include_str!("timezones.txt");

/// Whether the time zone exists; the empty name means UTC.
pub(crate) fn is_known(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || ZONES.lines().any(|zone| zone == name)
}
