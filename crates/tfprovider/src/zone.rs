//! The names of the time zone database.

/// Every name, sorted.
const ZONES: &str = include_str!("timezones.txt");

/// Whether there is such a time zone; the empty name stands for UTC.
pub(crate) fn is_known(name: &str) -> bool {
    matches!(name, "" | "UTC" | "Local") || ZONES.lines().any(|zone| zone == name)
}
