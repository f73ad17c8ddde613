//! Sets of weekdays.

use jiff::civil::Weekday;

/// The words of the API, from Monday.
pub const NAMES: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// A set of weekdays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weekdays(u8);

impl Weekdays {
    pub const ALL: Self = Self(0b111_1111);
    pub const NONE: Self = Self(0);

    /// Reads lower-case English words. Unknown words are ignored: they are refused where they are set.
    #[must_use]
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let bit = |name| NAMES.iter().position(|known| *known == name).map_or(0, |index| 1 << index);
        Self(names.into_iter().fold(0, |set, name| set | bit(name)))
    }

    #[must_use]
    pub fn contains(self, day: Weekday) -> bool {
        self.0 & (1 << day.to_monday_zero_offset()) != 0
    }

    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_named_days() {
        let days = Weekdays::from_names(["monday", "sunday", "someday"]);
        assert!(days.contains(Weekday::Monday) && days.contains(Weekday::Sunday));
        assert!(!days.contains(Weekday::Tuesday) && !days.is_empty());
        assert_eq!(Weekdays::from_names(NAMES), Weekdays::ALL);
        assert_eq!(Weekdays::from_names(NAMES.into_iter().chain(NAMES)), Weekdays::ALL, "twice is once");
        assert_eq!(Weekdays::from_names([]), Weekdays::NONE);
        assert!(Weekdays::NONE.is_empty() && !Weekdays::ALL.is_empty());
    }
}
