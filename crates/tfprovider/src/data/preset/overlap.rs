//! Whether two prebuild schedules ever mean the same hour (terraform 3.5).

/// Checks of schedules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("{0:?} and {1:?} overlap")]
    Overlap(String, String),
    #[error("{0:?} is not `*`, a number, a range or a list of these")]
    Field(String),
    #[error("{0:?} is outside of 0 to {1}")]
    Bounds(String, u32),
}

/// A schedule's fields after the minute.
pub(super) struct Schedule<'a> {
    hour: &'a str,
    day: &'a str,
    month: &'a str,
    weekday: &'a str,
}

impl<'a> Schedule<'a> {
    pub(super) fn split(cron: &'a str) -> Result<Self, Error> {
        let fields: Vec<_> = cron.split_whitespace().collect();
        let [_, hour, day, month, weekday] = fields[..] else { return Err(Error::Field(cron.to_owned())) };
        Ok(Self { hour, day, month, weekday })
    }

    /// Steps and names cannot be compared and are refused, unless the other fields decide already.
    pub(super) fn overlaps(&self, other: &Self) -> Result<bool, Error> {
        Ok(meet(self.month, other.month, 12)? && self.same_day(other)? && meet(self.hour, other.hour, 23)?)
    }

    /// A field that is `*` does not restrict days, so then only the other one applies.
    fn same_day(&self, other: &Self) -> Result<bool, Error> {
        let by_weekday = || meet(self.weekday, other.weekday, 6);
        let by_day = || meet(self.day, other.day, 31);
        if self.day == "*" || other.day == "*" {
            by_weekday()
        } else if self.weekday == "*" || other.weekday == "*" {
            by_day()
        } else {
            let (day, weekday) = (by_day()?, by_weekday()?);
            Ok(day || weekday)
        }
    }
}

/// Whether two fields have a number in common.
fn meet(left: &str, right: &str, most: u32) -> Result<bool, Error> {
    let (left, right) = (ranges(left, most)?, ranges(right, most)?);
    Ok(left.iter().any(|(first, last)| right.iter().any(|(start, end)| first <= end && start <= last)))
}

fn ranges(field: &str, most: u32) -> Result<Vec<(u32, u32)>, Error> {
    if field == "*" {
        return Ok(vec![(0, most)]);
    }
    let wrong = || Error::Field(field.to_owned());
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: u32 = first.parse().map_err(|_| wrong())?;
        let last: u32 = last.parse().map_err(|_| wrong())?;
        if first > last || last > most {
            return Err(Error::Bounds(part.to_owned(), most));
        }
        Ok((first, last))
    };
    field.split(',').map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(left: &str, right: &str) -> Result<bool, Error> {
        Schedule::split(left)?.overlaps(&Schedule::split(right)?)
    }

    fn overlap(left: &str, right: &str) -> bool {
        compare(left, right).expect("two schedules")
    }

    #[test]
    fn months_days_and_hours_must_all_meet() {
        assert!(overlap("* 9-18 * * 1-5", "* 18 * * 5"));
        assert!(!overlap("* 9-17 * * 1-5", "* 18 * * 5"));
        assert!(!overlap("* 9 * * 1-5", "* 9 * * 6,0"));
        assert!(!overlap("* 9 * 1-3 *", "* 9 * 4-6 *"));
    }

    #[test]
    fn days_of_month_and_of_week() {
        assert!(overlap("* 9 1 * *", "* 9 * * 3"), "any weekday meets any");
        assert!(!overlap("* 9 1 * 2", "* 9 * * 3"), "a free day of month leaves the weekday");
        assert!(!overlap("* 9 1 * *", "* 9 2 * 3"), "a free weekday leaves the day of month");
        assert!(overlap("* 9 1 * 3", "* 9 2 * 3"), "either may meet");
    }

    #[test]
    fn schedules_that_cannot_be_compared_are_refused() {
        for cron in ["* */2 * * *", "* 9 * jan *", "* 24 * * *", "* 5-3 * * *", "* 9"] {
            assert!(compare(cron, "* * * * *").is_err(), "{cron}");
        }
        assert!(!overlap("* */2 * 1 *", "* 9 * 2 *"), "hours in other months do not matter");
        assert!(!overlap("* 9 */2 * 1", "* 9 * * 2"), "nor do days of the month beside a free one");
    }
}
