//! The instants at which a started workspace stops: its deadline, which activity and people move, and the latest one, which
//! nobody moves.

use jiff::civil::{Date, date};
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use super::cron::Schedule;
use super::rules::TemplateRules;

/// A required stop that is nearer than this is left to the next day that requires one.
const MIN_TIME_TO_STOP: SignedDuration = SignedDuration::from_hours(1);
/// The Monday from which weeks are counted.
const FIRST_MONDAY: Date = date(2023, 1, 2);
/// An extension must reach at least so far. Texts for people say half an hour; the difference allows for the time of the request.
const LEAST_EXTENSION: SignedDuration = SignedDuration::from_mins(29);

/// When a started workspace stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deadlines {
    /// None for never.
    pub deadline: Option<Timestamp>,
    /// The latest possible deadline.
    pub max_deadline: Option<Timestamp>,
}

/// The deadlines of a workspace whose start has ended now. `autostart` is its own schedule, `quiet_hours` that of its owner.
#[must_use]
pub fn of_start(
    rules: &TemplateRules,
    ttl: Option<SignedDuration>,
    autostart: Option<&Schedule>,
    quiet_hours: Option<&Schedule>,
    now: Timestamp,
) -> Deadlines {
    let after_ttl = |from: Timestamp, ttl| from.checked_add(ttl).ok();
    let deadline = rules.time_to_live(ttl).and_then(|ttl| {
        let deadline = after_ttl(now, ttl)?;
        // Stopping shortly after the next scheduled start would be a surprise: the deadline is computed as if it had started then.
        match autostart.and_then(|schedule| next_autostart(rules, schedule, now)) {
            Some(start) if start < deadline => after_ttl(start, ttl),
            _ => Some(deadline),
        }
    });
    let max_deadline = quiet_hours.and_then(|quiet_hours| required_stop(rules, quiet_hours, now));
    Deadlines { deadline: earlier(deadline, max_deadline), max_deadline }
}

/// The deadlines of a started workspace whose template changes now when it requires stops.
#[must_use]
pub fn after_change(
    rules: &TemplateRules,
    deadline: Option<Timestamp>,
    quiet_hours: Option<&Schedule>,
    now: Timestamp,
) -> Deadlines {
    let max_deadline = quiet_hours.and_then(|quiet_hours| required_stop(rules, quiet_hours, now));
    Deadlines { deadline: earlier(deadline, max_deadline), max_deadline }
}

/// The earlier of two instants of which each may be missing.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// When a workspace may next start by its schedule.
#[must_use]
pub fn next_autostart(rules: &TemplateRules, schedule: &Schedule, after: Timestamp) -> Option<Timestamp> {
    if !rules.allow_user_autostart {
        return None;
    }
    schedule.next_on(rules.autostart_days, after)
}

/// The begin of the quiet hours on the next day on which the template requires a stop.
#[must_use]
pub fn required_stop(rules: &TemplateRules, quiet_hours: &Schedule, now: Timestamp) -> Option<Timestamp> {
    if rules.autostop_days.is_empty() {
        return None;
    }
    let zone = quiet_hours.zone();
    let soon = now.checked_add(MIN_TIME_TO_STOP).ok()?;
    let midnight = |day: Date| day.to_zoned(zone.clone()).ok().map(|at| at.timestamp());
    // The quiet hours of a day, also when they begin with it.
    let of_day =
        |day: Date| quiet_hours.next(midnight(day)?.checked_sub(SignedDuration::from_nanos(1)).ok()?);
    let mut day = soon.to_zoned(zone.clone()).date();
    if rules.autostop_weeks > 1 {
        day = week_of_stop(day, rules.autostop_weeks)?;
    }
    if of_day(day)? < soon {
        day = day.tomorrow().ok()?;
    }
    for _ in 0..7 {
        if rules.autostop_days.contains(day.weekday()) {
            return of_day(day);
        }
        day = day.tomorrow().ok()?;
    }
    None
}

/// The first day from `day` on in a week whose number `weeks` divides.
fn week_of_stop(day: Date, weeks: i64) -> Option<Date> {
    let days = i64::from(FIRST_MONDAY.until(day).ok()?.get_days());
    let week = days.div_euclid(7);
    let missing = (-week).rem_euclid(weeks);
    if missing == 0 {
        return Some(day);
    }
    FIRST_MONDAY.checked_add(((week + missing) * 7).days()).ok()
}

/// Why a deadline is not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtendError {
    #[error("the new deadline must be at least 30 minutes in the future")]
    TooSoon,
    #[error("the template requires a stop at {0}, and the new deadline is later")]
    BeyondMax(Timestamp),
}

/// Checks a deadline that a person asks for.
///
/// # Errors
/// It is too near, or beyond the latest one.
pub fn check_extension(wanted: Timestamp, max: Option<Timestamp>, now: Timestamp) -> Result<(), ExtendError> {
    if now.checked_add(LEAST_EXTENSION).is_ok_and(|least| wanted < least) {
        return Err(ExtendError::TooSoon);
    }
    match max {
        Some(max) if wanted > max => Err(ExtendError::BeyondMax(max)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rules::tests::DEFAULT;
    use super::super::weekdays::{NAMES, Weekdays};
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn quiet(text: &str) -> Schedule {
        Schedule::daily(text).unwrap()
    }

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    #[test]
    fn a_workspace_stops_after_its_time_to_live() {
        let now = at("2026-11-23T08:00:00Z");
        let found = of_start(&DEFAULT, Some(HOUR), None, None, now);
        assert_eq!(found, Deadlines { deadline: Some(now + HOUR), max_deadline: None });
        assert_eq!(of_start(&DEFAULT, None, None, None, now), Deadlines::default());
        assert_eq!(of_start(&DEFAULT, Some(SignedDuration::MAX), None, None, now), Deadlines::default());
    }

    #[test]
    fn a_deadline_behind_the_next_start_counts_from_that_start() {
        let schedule = Schedule::weekly("0 9 * * *").unwrap();
        let start =
            |ttl| of_start(&DEFAULT, Some(ttl), Some(&schedule), None, at("2026-11-23T21:45:00Z")).deadline;
        assert_eq!(start(HOUR * 12), Some(at("2026-11-24T21:00:00Z")));
        assert_eq!(start(HOUR * 2), Some(at("2026-11-23T23:45:00Z")));
        assert_eq!(start(HOUR * 45 / 4), Some(at("2026-11-24T09:00:00Z")), "not behind it");
        let never = TemplateRules { autostart_days: Weekdays::NONE, ..DEFAULT };
        let found = of_start(&never, Some(HOUR * 12), Some(&schedule), None, at("2026-11-23T21:45:00Z"));
        assert_eq!(found.deadline, Some(at("2026-11-24T09:45:00Z")));
    }

    /// 23 November 2026 is a Monday, and the 203rd week since the first Monday.
    #[test]
    fn a_required_stop_is_in_the_quiet_hours_of_its_day() {
        let rules = |days: &[&str], weeks| TemplateRules {
            autostop_days: Weekdays::from_names(days.iter().copied()),
            autostop_weeks: weeks,
            ..DEFAULT
        };
        let midnight = "CRON_TZ=UTC 0 0 * * *";
        for (days, weeks, schedule, now, want) in [
            (&["saturday"][..], 1, midnight, "2026-11-23T10:00:00Z", "2026-11-28T00:00:00Z"),
            // Less than an hour before, the next one counts.
            (&["saturday"], 1, midnight, "2026-11-27T23:30:00Z", "2026-12-05T00:00:00Z"),
            (&["monday"], 1, "0 23 * * *", "2026-11-23T10:00:00Z", "2026-11-23T23:00:00Z"),
            // Exactly an hour before, it still counts.
            (&["monday"], 1, "0 23 * * *", "2026-11-23T22:00:00Z", "2026-11-23T23:00:00Z"),
            (&["monday"], 1, "0 23 * * *", "2026-11-23T22:30:00Z", "2026-11-30T23:00:00Z"),
            (&NAMES, 1, "0 23 * * *", "2026-11-23T22:30:00Z", "2026-11-24T23:00:00Z"),
            (&["saturday"], 2, midnight, "2026-11-23T10:00:00Z", "2026-12-05T00:00:00Z"),
            (&["saturday"], 3, midnight, "2026-11-23T10:00:00Z", "2026-12-05T00:00:00Z"),
            (&["saturday"], 7, midnight, "2026-11-23T10:00:00Z", "2026-11-28T00:00:00Z"),
            (
                &["sunday"],
                1,
                "CRON_TZ=America/New_York 0 2 * * *",
                "2026-03-07T10:00:00Z",
                "2026-03-08T07:00:00Z",
            ),
        ] {
            let found = required_stop(&rules(days, weeks), &quiet(schedule), at(now));
            assert_eq!(found, Some(at(want)), "{days:?} every {weeks} weeks at {schedule} from {now}");
        }
        assert_eq!(required_stop(&DEFAULT, &quiet(midnight), at("2026-11-23T10:00:00Z")), None);
    }

    #[test]
    fn a_required_stop_limits_the_deadline() {
        let rules = TemplateRules { autostop_days: Weekdays::ALL, ..DEFAULT };
        let (midnight, now) = (quiet("0 0 * * *"), at("2026-11-23T10:00:00Z"));
        let stop = at("2026-11-24T00:00:00Z");
        for (ttl, want) in [(None, stop), (Some(HOUR), now + HOUR), (Some(HOUR * 20), stop)] {
            let found = of_start(&rules, ttl, None, Some(&midnight), now);
            assert_eq!(found, Deadlines { deadline: Some(want), max_deadline: Some(stop) });
        }
    }

    #[test]
    fn a_template_that_requires_a_stop_limits_started_workspaces_too() {
        let rules = TemplateRules { autostop_days: Weekdays::ALL, ..DEFAULT };
        let (midnight, now) = (quiet("0 0 * * *"), at("2026-11-23T10:00:00Z"));
        let stop = Some(at("2026-11-24T00:00:00Z"));
        for (before, want) in
            [(None, stop), (Some(now + HOUR), Some(now + HOUR)), (Some(now + HOUR * 20), stop)]
        {
            let found = after_change(&rules, before, Some(&midnight), now);
            assert_eq!(found, Deadlines { deadline: want, max_deadline: stop });
        }
        let free = after_change(&DEFAULT, stop, Some(&midnight), now);
        assert_eq!(free, Deadlines { deadline: stop, max_deadline: None });
    }

    #[test]
    fn an_extension_is_neither_too_near_nor_behind_the_latest_deadline() {
        let now = at("2026-11-23T10:00:00Z");
        assert_eq!(check_extension(now + HOUR / 2, None, now), Ok(()));
        assert_eq!(check_extension(now + LEAST_EXTENSION, None, now), Ok(()));
        let less = LEAST_EXTENSION - SignedDuration::from_secs(1);
        assert_eq!(check_extension(now + less, None, now), Err(ExtendError::TooSoon));
        assert_eq!(check_extension(now - HOUR, Some(now), now), Err(ExtendError::TooSoon));
        assert_eq!(check_extension(now + HOUR, Some(now + HOUR), now), Ok(()));
        assert_eq!(
            check_extension(now + HOUR * 2, Some(now + HOUR), now),
            Err(ExtendError::BeyondMax(now + HOUR))
        );
    }

    const ZONES: [&str; 6] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "America/Santiago",
    ];

    proptest! {
        /// In every zone and week: a stop is at least an hour away, at most the number of weeks and a day, on a required day.
        #[test]
        fn a_required_stop_is_ahead_and_on_a_required_day(
            seconds in 1_700_000_000_i64..2_100_000_000, hour in 0_u8..24, minute in 0_u8..60, zone in 0_usize..6,
            days in 1_u8..128, weeks in 1_i64..=16,
        ) {
            let names = (0..7).filter(|day| days & (1 << day) != 0).map(|day| NAMES[day]);
            let days = Weekdays::from_names(names);
            let rules = TemplateRules { autostop_days: days, autostop_weeks: weeks, ..DEFAULT };
            let quiet_hours = quiet(&format!("CRON_TZ={} {minute} {hour} * * *", ZONES[zone]));
            let now = Timestamp::from_second(seconds).unwrap();
            let stop = required_stop(&rules, &quiet_hours, now).unwrap();
            prop_assert!(stop >= now + HOUR, "{} to {}", now, stop);
            let days_ahead = stop.duration_since(now).as_hours() / 24;
            prop_assert!(days_ahead <= weeks * 7 + 8, "{} to {}", now, stop);
            let day = stop.to_zoned(quiet_hours.zone().clone());
            prop_assert!(days.contains(day.weekday()), "{}", day);
        }

        /// Nothing yields a deadline in the past or behind the latest one.
        #[test]
        fn deadlines_are_ahead_and_in_order(
            seconds in 1_700_000_000_i64..2_100_000_000, ttl in proptest::option::of(60_i64..2_600_000),
            start in proptest::bool::ANY, required in proptest::bool::ANY,
        ) {
            let rules = TemplateRules {
                autostop_days: if required { Weekdays::ALL } else { Weekdays::NONE }, ..DEFAULT
            };
            let schedule = Schedule::weekly("CRON_TZ=Europe/Berlin 30 2 * * *").unwrap();
            let now = Timestamp::from_second(seconds).unwrap();
            let ttl = ttl.map(SignedDuration::from_secs);
            let found = of_start(&rules, ttl, start.then_some(&schedule), Some(&schedule), now);
            prop_assert_eq!(found.max_deadline.is_some(), required);
            prop_assert_eq!(found.deadline.is_some(), required || ttl.is_some());
            if let Some(deadline) = found.deadline {
                prop_assert!(deadline > now);
                prop_assert!(found.max_deadline.is_none_or(|max| deadline <= max));
            }
        }
    }
}
