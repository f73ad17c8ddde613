//! Schedules in cron syntax: `CRON_TZ=Europe/Dublin 30 9 * * 1-5`. The zone is UTC when it is missing.
//!
//! A time that daylight saving skips counts as the first instant after the gap; one that comes twice counts once, the first time.
//! The official server skips the former and counts the latter twice.

use std::str::FromStr as _;

use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::weekdays::Weekdays;
use super::zones;

/// Longest text of a schedule.
const MAX_BYTES: usize = 256;
/// Days as names, from Sunday.
const DAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// Why a text is not a schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(
        "a schedule has five fields: minute, hour, *, * and the days of the week, and may begin with CRON_TZ=<zone>"
    )]
    Fields,
    #[error("unknown time zone {0:?}: use a name like Europe/Berlin")]
    Zone(String),
    #[error("day of month and month must be *")]
    Date,
    #[error(
        "quiet hours begin every day at one time: day of month, month and day of week must be *, minute and hour numbers"
    )]
    Daily,
    #[error("minute must be 0 to 59 and hour 0 to 23, as numbers, lists, ranges or steps")]
    Time,
    #[error(
        "the days of the week must be *, or 0 (Sunday) to 6, or names like Mon, joined by commas or hyphens"
    )]
    Days,
}

/// A schedule that repeats every week.
#[derive(Clone, Debug)]
pub struct Schedule {
    cron: Cron,
    zone: TimeZone,
    zone_name: String,
    minute: String,
    hour: String,
    days: String,
}

impl Schedule {
    /// Reads the schedule of a workspace: any minutes, hours and days of the week.
    ///
    /// # Errors
    /// The text cannot be read as one.
    pub fn weekly(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_BYTES {
            return Err(Error::Fields);
        }
        let mut fields: Vec<_> = text.split_whitespace().collect();
        let mut zone_name = "UTC";
        if let Some(name) = fields.first().and_then(|first| first.strip_prefix("CRON_TZ=")) {
            zone_name = name;
            fields.remove(0);
        }
        let [minute, hour, date, month, days] = fields.as_slice() else { return Err(Error::Fields) };
        let zone = zones::find(zone_name).filter(|_| !zone_name.is_empty());
        let zone = zone.ok_or_else(|| Error::Zone(zone_name.chars().take(64).collect()))?;
        if (*date, *month) != ("*", "*") {
            return Err(Error::Date);
        }
        let (minute, hour) = (minute.replace('?', "*"), hour.replace('?', "*"));
        if !is_numeric(&minute) || !is_numeric(&hour) {
            return Err(Error::Time);
        }
        let days = numbers_of_days(&days.replace('?', "*")).ok_or(Error::Days)?;
        // The fields are read one by one, so that the error names the field.
        Cron::from_str(&format!("{minute} {hour} * * *")).map_err(|_| Error::Time)?;
        let cron = Cron::from_str(&format!("{minute} {hour} * * {days}")).map_err(|_| Error::Days)?;
        Ok(Self { cron, zone, zone_name: zone_name.to_owned(), minute, hour, days })
    }

    /// Reads the begin of the quiet hours: one time, every day.
    ///
    /// # Errors
    /// The text cannot be read as one.
    pub fn daily(text: &str) -> Result<Self, Error> {
        let schedule = Self::weekly(text)?;
        let is_number = |text: &str| text.parse::<u8>().is_ok();
        if schedule.days != "*" || !is_number(&schedule.minute) || !is_number(&schedule.hour) {
            return Err(Error::Daily);
        }
        Ok(schedule)
    }

    /// The first instant of the schedule after this one.
    #[must_use]
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let after = after.to_zoned(self.zone.clone());
        self.cron.find_next_occurrence(&after, false).ok().map(|next| next.timestamp())
    }

    /// The first instant after this one on one of these days. The day is that of the schedule's time zone.
    #[must_use]
    pub fn next_on(&self, days: Weekdays, after: Timestamp) -> Option<Timestamp> {
        let mut from = after;
        // The present day, and each of the following week.
        for _ in 0..=8 {
            let next = self.next(from)?;
            let day = next.to_zoned(self.zone.clone());
            if days.contains(day.weekday()) {
                return Some(next);
            }
            // No other time of this day counts.
            let end = day.date().tomorrow().ok()?.to_zoned(self.zone.clone()).ok()?.timestamp();
            from = end.checked_sub(jiff::SignedDuration::from_nanos(1)).ok()?.max(next);
        }
        None
    }

    #[must_use]
    pub const fn zone(&self) -> &TimeZone {
        &self.zone
    }

    #[must_use]
    pub fn zone_name(&self) -> &str {
        &self.zone_name
    }

    /// Minute and hour, when each is one number.
    #[must_use]
    pub fn time(&self) -> Option<(u8, u8)> {
        Some((self.hour.parse().ok()?, self.minute.parse().ok()?))
    }

    /// For people, in the words of the official command line: `9:30AM Mon-Fri (Europe/Dublin)`.
    #[must_use]
    pub fn humanize(&self) -> String {
        let time = match self.time() {
            Some((hour, minute)) => {
                let half = if hour < 12 { "AM" } else { "PM" };
                let hour = match hour % 12 {
                    0 => 12,
                    hour => hour,
                };
                format!("{hour}:{minute:02}{half}")
            }
            None => format!("cron({} {})", self.minute, self.hour),
        };
        let days = if self.days == "*" { "daily".to_owned() } else { named_days(&self.days) };
        format!("{time} {days} ({})", self.zone_name)
    }
}

fn is_numeric(field: &str) -> bool {
    field.bytes().all(|byte| byte.is_ascii_digit() || b"*,-/".contains(&byte))
}

/// The field with numbers in the place of names; none when it has other words or a number above 6.
fn numbers_of_days(field: &str) -> Option<String> {
    let mut numbers = String::new();
    for word in field.split_inclusive([',', '-', '/']) {
        let (word, joint) = match word.strip_suffix([',', '-', '/']) {
            Some(head) => (head, &word[head.len()..]),
            None => (word, ""),
        };
        let number = DAYS.iter().position(|day| day.eq_ignore_ascii_case(word));
        match number {
            Some(number) => numbers.push_str(&number.to_string()),
            None if word == "*" || word.parse::<u8>().is_ok_and(|number| number < 7) => {
                numbers.push_str(word)
            }
            None => return None,
        }
        numbers.push_str(joint);
    }
    Some(numbers)
}

fn named_days(numbers: &str) -> String {
    // A step is a number, not a day.
    if numbers.contains('/') {
        return format!("cron({numbers})");
    }
    let name = |digit: char| digit.to_digit(10).and_then(|day| DAYS.get(day as usize));
    numbers.chars().map(|c| name(c).map_or_else(|| c.to_string(), |day| (*day).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn check(schedule: &str, after: &str, want: &str) {
        let next = Schedule::weekly(schedule).unwrap().next(at(after));
        assert_eq!(next, Some(at(want)), "{schedule} after {after}");
    }

    #[test]
    fn the_next_instant_is_that_of_the_zone() {
        check("30 9 * * 1-5", "2026-11-20T09:30:00Z", "2026-11-23T09:30:00Z");
        check("CRON_TZ=Europe/Dublin 30 9 * * 1-5", "2026-06-01T00:00:00Z", "2026-06-01T08:30:00Z");
        check("CRON_TZ=Asia/Kolkata 0 0 * * *", "2026-01-01T00:00:00Z", "2026-01-01T18:30:00Z");
        check("CRON_TZ=US/Central */15 10-12 * * Sat,0", "2026-11-23T00:00:00Z", "2026-11-28T16:00:00Z");
    }

    /// Clocks in Berlin go from 02:00 to 03:00 on 29 March and from 03:00 to 02:00 on 25 October 2026.
    #[test]
    fn a_skipped_time_is_taken_behind_the_gap_and_a_repeated_one_once() {
        check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z");
        check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z");
        check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T12:00:00Z", "2026-10-25T00:30:00Z");
        check("CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z");
        check("CRON_TZ=Europe/Berlin 0 9 * * *", "2026-03-28T09:00:00Z", "2026-03-29T07:00:00Z");
        check("CRON_TZ=Australia/Lord_Howe 15 2 * * *", "2026-10-03T12:00:00Z", "2026-10-03T15:30:00Z");
    }

    #[test]
    fn malformed_schedules_are_refused_by_field() {
        for (text, error) in [
            ("x", Error::Fields),
            ("", Error::Fields),
            ("0 9 * *", Error::Fields),
            ("0 0 9 * * *", Error::Fields),
            ("60 9 * * *", Error::Time),
            ("0 24 * * *", Error::Time),
            ("L 9 * * *", Error::Time),
            ("+1 9 * * *", Error::Time),
            ("1 +9 * * *", Error::Time),
            ("0 9 1 * *", Error::Date),
            ("0 9 * 2 *", Error::Date),
            ("0 9 * * 7", Error::Days),
            ("0 9 * * mon#2", Error::Days),
            ("0 9 * * 5L", Error::Days),
            ("0 9 * * ,", Error::Days),
            ("CRON_TZ= 0 9 * * *", Error::Zone(String::new())),
            ("CRON_TZ=Mars 0 9 * * *", Error::Zone("Mars".to_owned())),
        ] {
            assert_eq!(Schedule::weekly(text).map(drop), Err(error), "{text}");
        }
        assert!(Schedule::weekly(&"0 ".repeat(5000)).is_err());
        let padded = |length: usize| Schedule::weekly(&format!("{:length$}", "0 9 * * *"));
        assert!(padded(MAX_BYTES).is_ok());
        for more in [1, 2] {
            assert_eq!(padded(MAX_BYTES + more).map(drop), Err(Error::Fields));
        }
    }

    #[test]
    fn quiet_hours_have_one_time_a_day() {
        assert!(Schedule::daily("CRON_TZ=US/Central 30 1 * * *").is_ok());
        for text in ["0 1 * * 1", "0,30 1 * * *", "* * * * *", "0 1-2 * * *"] {
            assert_eq!(Schedule::daily(text).map(drop), Err(Error::Daily), "{text}");
        }
    }

    #[test]
    fn forbidden_days_are_passed_over() {
        let schedule = Schedule::weekly("CRON_TZ=Asia/Tokyo */5 0-3 * * *").unwrap();
        assert_eq!(schedule.zone_name(), "Asia/Tokyo");
        let friday = Weekdays::from_names(["friday"]);
        // Friday, 27 November 2026 begins in Tokyo at 15:00 UTC of the day before.
        assert_eq!(schedule.next_on(friday, at("2026-11-23T00:00:00Z")), Some(at("2026-11-26T15:00:00Z")));
        assert_eq!(schedule.next_on(friday, at("2026-11-26T18:55:00Z")), Some(at("2026-12-03T15:00:00Z")));
        assert_eq!(schedule.next_on(Weekdays::NONE, at("2026-11-23T00:00:00Z")), None);
        let monday = Schedule::weekly("0 9 * * 1").unwrap();
        assert_eq!(monday.zone_name(), "UTC");
        assert_eq!(monday.next_on(friday, at("2026-11-23T00:00:00Z")), None);
    }

    #[test]
    fn people_read_the_official_words() {
        for (text, words) in [
            ("CRON_TZ=Europe/Dublin 30 9 * * 1-5", "9:30AM Mon-Fri (Europe/Dublin)"),
            ("5 0 * * *", "12:05AM daily (UTC)"),
            ("0 12 * * Mon,Wed", "12:00PM Mon,Wed (UTC)"),
            ("*/5 12 * * *", "cron(*/5 12) daily (UTC)"),
        ] {
            assert_eq!(Schedule::weekly(text).unwrap().humanize(), words);
        }
    }

    /// The reference: every minute, tried one after another.
    fn by_minutes(hour: i8, minute: i8, days: Weekdays, zone: &TimeZone, after: Timestamp) -> Timestamp {
        let mut date = after.to_zoned(zone.clone()).date().yesterday().unwrap();
        loop {
            // jiff moves a skipped time by the length of the gap; the schedule takes the end of the gap.
            let local = date.at(hour, minute, 0, 0);
            let found = zone.to_ambiguous_timestamp(local);
            let instant = match found.offset() {
                jiff::tz::AmbiguousOffset::Gap { .. } => {
                    let mut later = local;
                    loop {
                        later = later.checked_add(jiff::Span::new().minutes(1)).unwrap();
                        let found = zone.to_ambiguous_timestamp(later);
                        if !found.is_ambiguous() {
                            break found.unambiguous().unwrap();
                        }
                    }
                }
                _ => found.earlier().unwrap(),
            };
            if days.contains(local.weekday()) && instant > after {
                return instant;
            }
            date = date.tomorrow().unwrap();
        }
    }

    const ZONES: [&str; 8] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/St_Johns",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Africa/Casablanca",
        "America/Santiago",
    ];

    proptest! {
        /// In all zones, around all changes of daylight saving, the next instant is that of the naive search.
        #[test]
        fn the_next_instant_is_that_of_a_naive_search(
            seconds in 1_700_000_000_i64..2_100_000_000, hour in 0_i8..24, minute in 0_i8..60, zone in 0_usize..8,
            days in 1_u8..128,
        ) {
            let names = crate::schedule::weekdays::NAMES;
            let chosen: Vec<_> = (0..7).filter(|day| days & (1 << day) != 0).collect();
            let numbers: Vec<_> = chosen.iter().map(|day| ((day + 1) % 7).to_string()).collect();
            let set = Weekdays::from_names(chosen.iter().map(|day| names[*day]));
            let text = format!("CRON_TZ={} {minute} {hour} * * {}", ZONES[zone], numbers.join(","));
            let schedule = Schedule::weekly(&text).unwrap();
            let after = Timestamp::from_second(seconds).unwrap();
            let want = by_minutes(hour, minute, set, schedule.zone(), after);
            prop_assert_eq!(schedule.next(after), Some(want), "{} after {}", text, after);
            prop_assert_eq!(schedule.next_on(Weekdays::ALL, after), Some(want));
        }

        #[test]
        fn no_text_panics(text in "(CRON_TZ=[A-Za-z/]{0,12} )?[-0-9*,/?LW# a-z]{0,40}") {
            if let Ok(schedule) = Schedule::weekly(&text) {
                let next = schedule.next(Timestamp::UNIX_EPOCH);
                prop_assert!(next.is_none_or(|next| next > Timestamp::UNIX_EPOCH));
                prop_assert!(!schedule.humanize().is_empty());
            }
        }
    }
}
