//! Durations as the official flags write them (`1h30m`, `100ms`, `24h0m0s`), and for people.

use std::time::Duration;

pub(crate) use coder_domain::duration::parse_flag as parse;

/// Writes a duration as Go does: `1h0m0s`, `1.5s`, `100ms`, `0s`.
pub(crate) fn format(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, length) in [("ns", 1_u128), ("µs", 1_000), ("ms", 1_000_000)] {
        if nanos < length * 1_000 {
            return decimal(nanos, length) + unit;
        }
    }
    let seconds = duration.as_secs();
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let rest = decimal(nanos % (60 * 1_000_000_000), 1_000_000_000);
    match (hours, minutes) {
        (0, 0) => format!("{rest}s"),
        (0, _) => format!("{minutes}m{rest}s"),
        _ => format!("{hours}h{minutes}m{rest}s"),
    }
}

fn decimal(nanos: u128, unit: u128) -> String {
    let whole = nanos / unit;
    let fraction = nanos % unit;
    if fraction == 0 {
        return whole.to_string();
    }
    let width = unit.ilog10() as usize;
    let digits = format!("{fraction:0width$}");
    format!("{whole}.{}", digits.trim_end_matches('0'))
}

/// The largest unit of a duration: `45s`, `12m`, `3h`, `5d`, for narrow tables.
pub(crate) fn coarse(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A duration in days, hours and minutes, without those that are zero: `8h`, `1d12h`, `45m`; `<1m` for less.
pub(crate) fn units(duration: Duration) -> String {
    let minutes = duration.as_secs() / 60;
    let parts = [(minutes / 1_440, 'd'), (minutes / 60 % 24, 'h'), (minutes % 60, 'm')];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { "<1m".to_owned() } else { text }
}

/// A duration for people: `340ms`, `2.1s`, `3m12s`, `2h5m`, `4d`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{}ms", duration.as_millis()),
        1..=59 => format!("{:.1}s", duration.as_secs_f64()),
        60..=3_599 => format!("{}m{}s", seconds / 60, seconds % 60),
        3_600..=172_799 => format!("{}h{}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_without_zeros() {
        let check = |text: &str, want: &str| assert_eq!(units(parse(text).expect("valid")), want);
        for (text, want) in [("8h", "8h"), ("36h30m", "1d12h30m"), ("90s", "1m"), ("59s", "<1m")] {
            check(text, want);
        }
    }

    #[test]
    fn go_durations_written() {
        let check = |text: &str| assert_eq!(format(parse(text).expect("valid")), text);
        ["0s", "100ms", "1.5s", "1h30m0s", "24h0m0s", "2m0.25s", "1.5µs"].into_iter().for_each(check);
    }
}
