//! Durations as Go writes them: `1h30m`, `1.5s`, `100ms`. Official flags, query parameters and Terraform use this form.

use std::time::Duration;

use jiff::SignedDuration;

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid duration {0:?}: write it for example as 90s, 5m or 1h30m")]
pub struct Error(String);

/// Units and their length in nanoseconds. The two spellings of microseconds are U+00B5 and U+03BC.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const DAY: (&str, u64) = ("d", 86_400_000_000_000);
/// The magnitude of the least duration; the greatest is one less.
const MAX_MAGNITUDE: u64 = 1 << 63;

/// Reads a duration as Go's `time.ParseDuration` does: a sign, and decimal numbers with units. Zero needs no unit. The
/// range is that of 64 bits of nanoseconds.
pub fn parse(text: &str) -> Result<SignedDuration, Error> {
    read(text, &|name| unit(name)).ok_or_else(|| error(text))
}

/// Reads a duration of a flag: as [`parse`], but never negative, and with days (`7d`).
pub fn parse_flag(text: &str) -> Result<Duration, Error> {
    let with_days = |name: &str| if name == DAY.0 { Some(DAY.1) } else { unit(name) };
    let duration = read(text, &with_days).filter(|_| !text.starts_with(['-', '+']));
    duration.and_then(|duration| Duration::try_from(duration).ok()).ok_or_else(|| error(text))
}

fn error(text: &str) -> Error {
    Error(text.chars().take(64).collect())
}

fn unit(name: &str) -> Option<u64> {
    UNITS.iter().find(|(unit, _)| *unit == name).map(|(_, length)| *length)
}

fn read(text: &str, unit: &dyn Fn(&str) -> Option<u64>) -> Option<SignedDuration> {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut total = 0_u64;
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (name, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        total =
            total.checked_add(nanoseconds(number, unit(name)?)?).filter(|total| *total <= MAX_MAGNITUDE)?;
        rest = tail;
    }
    if text.starts_with('-') {
        return Some(SignedDuration::from_nanos(0_i64.checked_sub_unsigned(total)?));
    }
    i64::try_from(total).ok().map(SignedDuration::from_nanos)
}

/// A decimal number of units.
fn nanoseconds(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()?.checked_mul(unit)? };
    whole.checked_add(part(fraction, unit)).filter(|total| *total <= MAX_MAGNITUDE)
}

/// The nanoseconds of a fraction of a unit, rounded as Go rounds them. More digits than 64 bits hold are ignored.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go calculates with 64-bit floating-point numbers; the result is less than the unit"
)]
fn part(fraction: &str, unit: u64) -> u64 {
    let (mut digits, mut scale) = (0_u64, 1_f64);
    for digit in fraction.bytes().map(|byte| u64::from(byte - b'0')) {
        let next = digits.checked_mul(10).and_then(|digits| digits.checked_add(digit));
        let Some(next) = next.filter(|next| *next <= MAX_MAGNITUDE) else { break };
        (digits, scale) = (next, scale * 10.0);
    }
    (digits as f64 * (unit as f64 / scale)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Go's own table of `time.ParseDuration`.
    #[test]
    fn durations_are_read_as_go_reads_them() {
        const MINUTE: i64 = 60_000_000_000;
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+0", 0),
            ("5s", 5_000_000_000),
            ("-5s", -5_000_000_000),
            ("+5s", 5_000_000_000),
            ("5.6s", 5_600_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("1.0040s", 1_004_000_000),
            ("100.00100s", 100_001_000_000),
            ("11us", 11_000),
            ("12\u{b5}s", 12_000),
            ("12\u{3bc}s", 12_000),
            ("13ms", 13_000_000),
            ("16h", 960 * MINUTE),
            ("10.5s4m", 4 * MINUTE + 10_500_000_000),
            ("-2m3.4s", -2 * MINUTE - 3_400_000_000),
            ("1h2m3s4ms5us6ns", 3_723_004_005_006),
            ("39h9m14.425s", 140_954_425_000_000),
            ("9007199254740993ns", (1 << 53) + 1),
            ("9223372036854775807ns", i64::MAX),
            ("9223372036854775.807us", i64::MAX),
            ("-9223372036854775808ns", i64::MIN),
            ("-2562047h47m16.854775808s", i64::MIN),
            ("0.3333333333333333333h", 20 * MINUTE),
            ("0.100000000000000000000h", 6 * MINUTE),
            ("0.830103483285477580700h", 2_988_372_539_827),
        ] {
            assert_eq!(parse(text), Ok(SignedDuration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "3",
            "-",
            "s",
            ".",
            "-.",
            ".s",
            "+.s",
            "1d",
            "1 s",
            "1h 2m",
            "--1s",
            "1..5s",
            "1s2",
            "0x1s",
            "9223372036854775808ns",
            "-9223372036854775809ns",
            "9223372036854776us",
            "3000000h",
            "9223372036854775.808us",
            "9223372036854ms775us808ns",
            "99999999999999999999h",
        ] {
            assert_eq!(parse(text), Err(Error(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn flags_have_days_and_no_sign() {
        assert_eq!(parse_flag("7d12h"), Ok(Duration::from_secs(7 * 86_400 + 43_200)));
        assert_eq!(parse_flag("0"), Ok(Duration::ZERO));
        for text in ["-1s", "+1s", "-0", "1w", ""] {
            assert!(parse_flag(text).is_err(), "{text}");
        }
        let error = parse_flag(&"1".repeat(100)).expect_err("no unit").to_string();
        assert!(error.contains("90s, 5m or 1h30m") && error.len() < 200, "{error}");
    }

    proptest! {
        /// A sum of whole numbers of units is exact, in any order, with either sign.
        #[test]
        fn sums_of_units_are_exact(parts in proptest::collection::vec((0_u32..100_000, 0_usize..8), 1..6), is_negative: bool) {
            let text: String = parts.iter().map(|(number, unit)| format!("{number}{}", UNITS[*unit].0)).collect();
            let sum: u64 = parts.iter().map(|(number, unit)| u64::from(*number) * UNITS[*unit].1).sum();
            let sum = i64::try_from(sum).expect("below 2^63");
            let (text, sum) = if is_negative { (format!("-{text}"), -sum) } else { (text, sum) };
            prop_assert_eq!(parse(&text), Ok(SignedDuration::from_nanos(sum)));
        }

        /// What jiff writes in this form is read again, to the nanosecond.
        #[test]
        fn decimal_seconds_are_exact(seconds in 0_i64..9_000_000_000, nanos in 0_i32..1_000_000_000) {
            let text = format!("{seconds}.{nanos:09}s");
            prop_assert_eq!(parse(&text), Ok(SignedDuration::new(seconds, nanos)));
        }

        #[test]
        fn no_text_panics(text in "[-+0-9.a-zµ]{0,24}") {
            let _ = (parse(&text), parse_flag(&text));
        }
    }
}
