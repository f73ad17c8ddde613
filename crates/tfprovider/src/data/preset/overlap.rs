//! Whether two prebuild schedules ever mean the same hour (terraform 3.5).

/// What is wrong with schedules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    #[error("{0:?} and {1:?} overlap")]
    Overlap(String, String),
    #[error("{0:?} is not `*`, a number, a range or a list of these")]
    Field(String),
    #[error("{0:?} is outside of 0 to {1}")]
    Bounds(String, u32),
}

/// The hours of a field; none means every hour.
struct Field(Option<Vec<(u32, u32)>>);

/// A schedule's fields after the minute.
pub(super) struct Schedule {
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Schedule {
    /// Reads a five-field expression; steps and names cannot be compared and are refused.
    pub(super) fn parse(cron: &str) -> Result<Self, Error> {
        let fields: Vec<_> = cron.split_whitespace().collect();
        let [_, hour, day, month, weekday] = fields[..] else { return Err(Error::Field(cron.to_owned())) };
        Ok(Self {
            hour: Field::parse(hour, 23)?,
            day: Field::parse(day, 31)?,
            month: Field::parse(month, 12)?,
            weekday: Field::parse(weekday, 6)?,
        })
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.month.meets(&other.month) && self.same_day(other) && self.hour.meets(&other.hour)
    }

    /// A field that is `*` says nothing about days, so then only the other one counts.
    fn same_day(&self, other: &Self) -> bool {
        if self.day.is_any() || other.day.is_any() {
            self.weekday.meets(&other.weekday)
        } else if self.weekday.is_any() || other.weekday.is_any() {
            self.day.meets(&other.day)
        } else {
            self.day.meets(&other.day) || self.weekday.meets(&other.weekday)
        }
    }
}

impl Field {
    fn parse(text: &str, most: u32) -> Result<Self, Error> {
        if text == "*" {
            return Ok(Self(None));
        }
        let wrong = || Error::Field(text.to_owned());
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.parse().map_err(|_| wrong())?;
            let last: u32 = last.parse().map_err(|_| wrong())?;
            if first > last || last > most {
                return Err(Error::Bounds(part.to_owned(), most));
            }
            Ok((first, last))
        };
        Ok(Self(Some(text.split(',').map(range).collect::<Result<_, _>>()?)))
    }

    fn is_any(&self) -> bool {
        self.0.is_none()
    }

    fn meets(&self, other: &Self) -> bool {
        let (Some(left), Some(right)) = (&self.0, &other.0) else { return true };
        left.iter().any(|(first, last)| right.iter().any(|(start, end)| first <= end && start <= last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlap(left: &str, right: &str) -> bool {
        let parse = |text| Schedule::parse(text).expect("a schedule");
        parse(left).overlaps(&parse(right))
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
    fn what_cannot_be_compared_is_refused() {
        for cron in ["* */2 * * *", "* 9 * jan *", "* 24 * * *", "* 5-3 * * *", "* 9"] {
            assert!(Schedule::parse(cron).is_err(), "{cron}");
        }
    }
}
