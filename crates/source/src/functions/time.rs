//! Dates. The present moment is an input, so that evaluating stays pure.

use coder_domain::Timestamp;
use coder_domain::duration;
use jiff::Zoned;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;

use super::Param::Text;
use super::{Args, Function, function};
use crate::budget::{Result, failed, unavailable};
use crate::number::Number;
use crate::value::Value;

pub(super) const FUNCTIONS: &[Function] = &[
    function("timestamp", &[], |args| {
        args.text_result(written(&args.evaluator.references.now().to_zoned(TimeZone::UTC)))
    }),
    function("timeadd", &[Text, Text], add),
    function("timecmp", &[Text, Text], compare),
    function("formatdate", &[Text, Text], format),
];

/// A time in whole seconds, with its offset.
fn written(at: &Zoned) -> String {
    let (date, time) = (at.date(), at.time());
    let day = format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day());
    format!("{day}T{:02}:{:02}:{:02}{}", time.hour(), time.minute(), time.second(), offset(at, true, ":"))
}

/// The offset from UTC, with a separator between hours and minutes, or `Z` for zero.
fn offset(at: &Zoned, short: bool, between: &str) -> String {
    let seconds = at.offset().seconds();
    if seconds == 0 && short {
        return "Z".to_owned();
    }
    let (sign, minutes) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs() / 60);
    format!("{sign}{:02}{between}{:02}", minutes / 60, minutes % 60)
}

/// Reads a time in the one notation that Terraform takes, for example `2006-01-02T15:04:05.5+02:00`.
fn parse(text: &str) -> Result<Timestamp> {
    let wrong = || failed("a time is written like 2006-01-02T15:04:05Z");
    let Some((seconds, rest)) = text.split_at_checked(19) else { return wrong() };
    let fits = |text: &str, pattern: &str| {
        text.len() == pattern.len()
            && text.bytes().zip(pattern.bytes()).all(|(byte, expected)| match expected {
                b'0' => byte.is_ascii_digit(),
                b'+' => matches!(byte, b'+' | b'-'),
                other => byte == other,
            })
    };
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|char: char| char.is_ascii_digit());
            if zone.len() == fraction.len() {
                return wrong();
            }
            zone
        }
        None => rest,
    };
    if !fits(seconds, "0000-00-00T00:00:00")
        || !(zone == "Z" || fits(zone, "+00:00") && zone[1..3] < *"24")
        || seconds.ends_with("60")
    {
        return wrong();
    }
    if seconds >= "9999-12-30" && seconds.parse::<jiff::civil::DateTime>().is_ok() {
        return unavailable("times this far away are not computed here");
    }
    // Digits beyond nanoseconds do not matter.
    let fraction: String = rest[..rest.len() - zone.len()].chars().take(10).collect();
    format!("{seconds}{fraction}{zone}").parse().or_else(|_| wrong())
}

fn add(args: &Args<'_>) -> Result<Value> {
    let at = zoned(&args.text(0)?)?;
    let Ok(duration) = duration::parse(&args.text(1)?) else {
        return failed("a duration is written like 1h30m or -10s");
    };
    match at.checked_add(duration) {
        Ok(at) => args.text_result(written(&at)),
        Err(_) => unavailable("times this far away are not computed here"),
    }
}

/// -1, 0 or 1: whether the first is earlier, the same, or later.
fn compare(args: &Args<'_>) -> Result<Value> {
    let order = parse(&args.text(0)?)?.cmp(&parse(&args.text(1)?)?);
    Ok(Value::Number(Number::from(order as i64)))
}

/// The pattern letters of Terraform's `formatdate`.
fn format(args: &Args<'_>) -> Result<Value> {
    let (pattern, text) = (args.text(0)?, args.text(1)?);
    let at = zoned(&text)?;
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut index = 0;
    while let Some(&char) = chars.get(index) {
        if char == '\'' {
            index += 1;
            if chars.get(index) == Some(&'\'') {
                out.push('\'');
                index += 1;
                continue;
            }
            loop {
                match (chars.get(index), chars.get(index + 1)) {
                    (Some('\''), Some('\'')) => {
                        out.push('\'');
                        index += 2;
                        // At the end of the pattern the second quote ends the part, too.
                        if index == chars.len() {
                            break;
                        }
                    }
                    (Some('\''), _) => break,
                    (Some(other), _) => {
                        out.push(*other);
                        index += 1;
                    }
                    (None, _) => return failed("a quoted part of the pattern does not end"),
                }
            }
            index += 1;
            continue;
        }
        let run = chars[index..].iter().take_while(|other| **other == char).count();
        index += run;
        if char.is_ascii_alphabetic() {
            out.push_str(&part(char, run, &at)?);
        } else {
            out.extend(std::iter::repeat_n(char, run));
        }
    }
    args.text_result(out)
}

/// A time with the offset it was written with.
fn zoned(text: &str) -> Result<Zoned> {
    let at = parse(text)?;
    let offset = DateTimeParser::new()
        .parse_pieces(text)
        .ok()
        .and_then(|pieces| pieces.to_numeric_offset())
        .unwrap_or(jiff::tz::Offset::UTC);
    Ok(at.to_zoned(TimeZone::fixed(offset)))
}

fn part(letter: char, run: usize, at: &Zoned) -> Result<String> {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
    let (date, time) = (at.date(), at.time());
    let count = |number: i8| match run {
        1 => Some(number.to_string()),
        2 => Some(format!("{number:02}")),
        _ => None,
    };
    let name = |names: &[&str], number: i8| {
        let name = usize::try_from(number - 1).ok().and_then(|at| names.get(at)).copied().unwrap_or_default();
        match run {
            3 => name.get(..3).map(str::to_owned),
            4 => Some(name.to_owned()),
            _ => None,
        }
    };
    let half = if time.hour() < 12 { ("AM", "am") } else { ("PM", "pm") };
    let text = match (letter, run) {
        ('Y', 4) => Some(format!("{:04}", date.year())),
        ('Y', 2) => Some(format!("{:02}", date.year() % 100)),
        ('M', 3 | 4) => name(&MONTHS, date.month()),
        ('M', _) => count(date.month()),
        ('D', _) => count(date.day()),
        ('E', _) => name(&DAYS, date.weekday().to_monday_one_offset()),
        ('h', _) => count(time.hour()),
        ('H', _) => count((time.hour() + 11) % 12 + 1),
        ('A', 2) => Some(half.0.to_owned()),
        ('a', 2) => Some(half.1.to_owned()),
        ('m', _) => count(time.minute()),
        ('s', _) => count(time.second()),
        ('Z', 1) => Some(offset(at, true, ":")),
        ('Z', 3) if at.offset().is_zero() => Some("UTC".to_owned()),
        ('Z', 3 | 4) => Some(offset(at, false, "")),
        ('Z', 5) => Some(offset(at, false, ":")),
        _ => None,
    };
    match text {
        Some(text) => Ok(text),
        None => failed(format!("{:?} is not a part of a date", letter.to_string().repeat(run))),
    }
}
