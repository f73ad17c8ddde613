//! Dates. The present moment is an input, so that evaluating stays pure.

use coder_domain::Timestamp;
use jiff::fmt::strtime;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};

use super::Args;
use crate::budget::{Result, failed};
use crate::number::Number;
use crate::value::Value;

pub(super) fn call(name: &str, args: &Args<'_>, now: Timestamp) -> Option<Result<Value>> {
    Some(match name {
        "timestamp" => args.count(0, 0).and_then(|()| args.made(written(now))),
        "timeadd" => add(args),
        "timecmp" => compare(args),
        "formatdate" => format(args),
        _ => return None,
    })
}

fn written(at: Timestamp) -> String {
    let seconds = Timestamp::from_second(at.as_second()).unwrap_or(at);
    seconds.to_string()
}

fn parse(text: &str) -> Result<Timestamp> {
    match text.parse() {
        Ok(at) => Ok(at),
        Err(_) => failed("a time is written like 2006-01-02T15:04:05Z"),
    }
}

fn add(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let at = zoned(&args.text(0)?)?;
    let Some(duration) = duration(&args.text(1)?) else {
        return failed("a duration is written like 1h30m or -10s");
    };
    match at.checked_add(duration) {
        Ok(at) if at.offset().is_zero() => args.made(written(at.timestamp())),
        Ok(at) => args.made(strtime::format("%Y-%m-%dT%H:%M:%S%:z", &at).unwrap_or_default()),
        Err(_) => failed("the time is out of range"),
    }
}

/// -1, 0 or 1: whether the first is earlier, the same, or later.
fn compare(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let order = parse(&args.text(0)?)?.cmp(&parse(&args.text(1)?)?);
    Ok(Value::Number(Number::from(order as i64)))
}

/// A sum of numbers with units, for example `1h30m`.
fn duration(text: &str) -> Option<SignedDuration> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(SignedDuration::ZERO);
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|char: char| !char.is_ascii_digit() && char != '.')?;
        let value: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|char: char| char.is_ascii_digit() || char == '.').unwrap_or(rest.len());
        seconds += value
            * match &rest[..unit] {
                "h" => 3600.0,
                "m" => 60.0,
                "s" => 1.0,
                "ms" => 1e-3,
                "us" | "µs" => 1e-6,
                "ns" => 1e-9,
                _ => return None,
            };
        rest = &rest[unit..];
    }
    SignedDuration::try_from_secs_f64(sign * seconds).ok()
}

/// The pattern letters of Terraform's `formatdate`.
fn format(args: &Args<'_>) -> Result<Value> {
    args.count(2, 2)?;
    let (pattern, text) = (args.text(0)?, args.text(1)?);
    let at = zoned(&text)?;
    let chars: Vec<char> = pattern.chars().collect();
    let mut out = String::new();
    let mut index = 0;
    while let Some(&char) = chars.get(index) {
        if char == '\'' {
            index += 1;
            loop {
                match (chars.get(index), chars.get(index + 1)) {
                    (Some('\''), Some('\'')) => {
                        out.push('\'');
                        index += 2;
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
    args.made(out)
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
    let pattern = match (letter, run) {
        ('Y', 4) => "%Y",
        ('Y', 2) => "%y",
        ('M', 4) => "%B",
        ('M', 3) => "%b",
        ('M', 2) => "%m",
        ('M', 1) => "%-m",
        ('D', 2) => "%d",
        ('D', 1) => "%-d",
        ('E', 4) => "%A",
        ('E', 3) => "%a",
        ('h', 2) => "%H",
        ('h', 1) => "%-H",
        ('H', 2) => "%I",
        ('H', 1) => "%-I",
        ('A', 2) => "%p",
        ('a', 2) => "%P",
        ('m', 2) => "%M",
        ('m', 1) => "%-M",
        ('s', 2) => "%S",
        ('s', 1) => "%-S",
        ('Z', 1) if at.offset().is_zero() => return Ok("Z".to_owned()),
        ('Z', 3) if at.offset().is_zero() => return Ok("UTC".to_owned()),
        ('Z', 1 | 5) => "%:z",
        ('Z', 3 | 4) => "%z",
        _ => return failed(format!("{:?} is no part of a date", letter.to_string().repeat(run))),
    };
    match strtime::format(pattern, at) {
        Ok(text) => Ok(text),
        Err(_) => failed("the time cannot be written"),
    }
}
