//! Cron expressions: seconds first for scripts, five fields for prebuild schedules (terraform 3.4, 3.5).

use crate::zone;

/// Why a text is not a cron expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("expected {expected} fields, found {found}")]
    Fields { expected: &'static str, found: usize },
    #[error("{0:?} is not in the time zone database")]
    Zone(String),
    #[error("{0:?} is not a known descriptor")]
    Descriptor(String),
    #[error("{0:?} is not a duration")]
    Duration(String),
    #[error("{0:?} is not a number, a name, a range or a step")]
    Field(String),
    #[error("{part:?} is outside of {least} to {most}")]
    Bounds { part: String, least: u32, most: u32 },
}

/// The smallest and largest number of a field, and the names of its numbers from the smallest on.
struct Field(u32, u32, &'static [&'static str]);

const CLOCK: Field = Field(0, 59, &[]);
const HOUR: Field = Field(0, 23, &[]);
const DAY: Field = Field(1, 31, &[]);
const MONTH: Field =
    Field(1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]);
const WEEKDAY: Field = Field(0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]);

/// Seconds, minute, hour, day, month and, if given, weekday; or a descriptor.
pub(crate) fn with_seconds(text: &str) -> Result<(), Error> {
    let text = without_zone(text)?;
    if let Some(descriptor) = text.strip_prefix('@') {
        return check_descriptor(descriptor);
    }
    let parts: Vec<_> = text.split_whitespace().collect();
    if !(5..=6).contains(&parts.len()) {
        return Err(Error::Fields { expected: "5 to 6", found: parts.len() });
    }
    check(&parts, &[CLOCK, CLOCK, HOUR, DAY, MONTH, WEEKDAY])
}

/// Minute, hour, day, month and weekday.
pub(crate) fn five_fields(text: &str) -> Result<(), Error> {
    let parts: Vec<_> = without_zone(text)?.split_whitespace().collect();
    if parts.len() != 5 {
        return Err(Error::Fields { expected: "exactly 5", found: parts.len() });
    }
    check(&parts, &[CLOCK, HOUR, DAY, MONTH, WEEKDAY])
}

/// A time zone may be written before the fields.
fn without_zone(text: &str) -> Result<&str, Error> {
    let Some(rest) = text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) else {
        return Ok(text);
    };
    let (name, fields) = rest.split_once(' ').unwrap_or((rest, ""));
    if zone::is_known(name) { Ok(fields.trim()) } else { Err(Error::Zone(name.to_owned())) }
}

fn check_descriptor(descriptor: &str) -> Result<(), Error> {
    const SHORTHANDS: [&str; 7] = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"];
    if let Some(duration) = descriptor.strip_prefix("every ") {
        return if coder_domain::duration::parse(duration).is_ok() {
            Ok(())
        } else {
            Err(Error::Duration(duration.to_owned()))
        };
    }
    if SHORTHANDS.contains(&descriptor) { Ok(()) } else { Err(Error::Descriptor(descriptor.to_owned())) }
}

fn check(parts: &[&str], fields: &[Field]) -> Result<(), Error> {
    let mut pairs = parts.iter().zip(fields);
    pairs.try_for_each(|(part, field)| {
        let mut items = part.split(',').filter(|item| !item.is_empty());
        items.try_for_each(|item| check_item(item, field))
    })
}

fn check_item(item: &str, field: &Field) -> Result<(), Error> {
    let wrong = || Error::Field(item.to_owned());
    let (range, step) = match item.split_once('/') {
        Some((range, step)) => (range, step.parse::<u32>().map_err(|_| wrong())?),
        None => (item, 1),
    };
    if step == 0 {
        return Err(wrong());
    }
    if range == "*" || range == "?" {
        return Ok(());
    }
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let number = |text: &str| {
        let name = field.2.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = name.and_then(|index| u32::try_from(index).ok()).map(|index| field.0 + index);
        // A plus sign before a number is fine, as it is in Go.
        named.or_else(|| text.parse().ok()).ok_or_else(wrong)
    };
    let (first, last) = (number(first)?, number(last)?);
    if first < field.0 || last > field.1 || first > last {
        return Err(Error::Bounds { part: item.to_owned(), least: field.0, most: field.1 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_come_first_for_scripts() {
        for fine in [
            "0 0 22 * * *",
            "*/15 0-30/5 1,,2,3 ? JAN-mar mon",
            "0 0 22 * *",
            "+5 * * * * *",
            "@hourly",
            "@every 1h30m",
            "@every 1.5s",
            "CRON_TZ=Europe/Vienna 0 0 9 * * 1-5",
        ] {
            assert_eq!(with_seconds(fine), Ok(()), "{fine}");
        }
        for wrong in [
            "",
            "* * * *",
            "* * * * * * *",
            "60 * * * * *",
            "* * 24 * * *",
            "* * * 0 * *",
            "* * * * 13 *",
            "* * * * * 7",
            "5-1 * * * * *",
            "*/0 * * * * *",
            "a * * * * *",
            "-5 * * * * *",
            "@sometimes",
            "@every soon",
            "@every 1x",
            "CRON_TZ=Mars/Base 0 0 9 * * *",
            "TZ=UTC",
        ] {
            assert!(with_seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn five_fields_are_exactly_five() {
        assert_eq!(five_fields("* 9-17 * * 1-5"), Ok(()));
        assert_eq!(five_fields("* 9"), Err(Error::Fields { expected: "exactly 5", found: 2 }));
        assert!(five_fields("0 0 22 * * *").is_err() && five_fields("@daily").is_err());
    }
}
