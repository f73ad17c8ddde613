//! Durations as the official flags write them: `1h30m`, `100ms`, `24h0m0s`.

use std::time::Duration;

/// Units and their length in nanoseconds, longest name first where one is a prefix of another.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60 * 1_000_000_000),
    ("h", 3_600 * 1_000_000_000),
    ("d", 86_400 * 1_000_000_000),
];

/// Reads a duration; `0` needs no unit.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("invalid duration {text:?}, write for example 90s, 5m or 1h30m");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let mut rest = text;
    let mut total = 0_u64;
    if rest.is_empty() {
        return Err(invalid());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(invalid)?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let (_, length) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(invalid)?;
        let part = nanoseconds(number, *length).ok_or_else(invalid)?;
        total = total.checked_add(part).filter(|sum| i64::try_from(*sum).is_ok()).ok_or_else(invalid)?;
        rest = tail;
    }
    Ok(Duration::from_nanos(total))
}

fn nanoseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut total = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(unit)? };
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        total = total.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(total)
}

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

/// The greatest unit of a duration alone: `45s`, `12m`, `3h`, `5d`, as in a narrow table.
pub(crate) fn coarse(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..60 => format!("{seconds}s"),
        seconds @ 60..3_600 => format!("{}m", seconds / 60),
        seconds @ 3_600..86_400 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
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
    fn go_durations_read() {
        let check =
            |text: &str, millis: u64| assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        check("0", 0);
        check("100ms", 100);
        check("1.5s", 1_500);
        check("1h30m", 5_400_000);
        check("24h0m0s", 86_400_000);
        check(".5m", 30_000);
        for bad in ["", "1", "h", "1x", "-1s", ".s", "1h 2m", "99999999999h"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn go_durations_written() {
        let check = |text: &str| assert_eq!(format(parse(text).expect("valid")), text);
        ["0s", "100ms", "1.5s", "1h30m0s", "24h0m0s", "2m0.25s", "1.5µs"].into_iter().for_each(check);
    }
}
