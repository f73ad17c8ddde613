//! Recurring times with another least number of daemons.

use std::str::FromStr as _;

use coder_domain::schedule::zones;
use croner::Cron;
use jiff::{SignedDuration, Timestamp};

use crate::crd::autoscaling::{Autoscaling, Schedule};

/// Why a schedule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No cron expression.
    #[error(
        "cannot read the schedule {0:?}: write minute, hour, day of the month, month and day of the week, as in cron"
    )]
    Cron(String),
    /// No time zone.
    #[error("unknown time zone {0:?}: write it as Europe/Berlin or UTC")]
    TimeZone(String),
}

/// The least number of daemons at `now`.
///
/// # Errors
/// A schedule is malformed.
pub fn minimum(autoscaling: &Autoscaling, now: Timestamp) -> Result<i32, Error> {
    let mut least = autoscaling.min_replicas;
    for schedule in &autoscaling.schedules {
        if is_active(schedule, now)? {
            least = least.max(schedule.min_replicas);
        }
    }
    Ok(least)
}

/// Whether a schedule began within its duration before `now`.
fn is_active(schedule: &Schedule, now: Timestamp) -> Result<bool, Error> {
    let cron = Cron::from_str(&schedule.cron).map_err(|_| Error::Cron(schedule.cron.clone()))?;
    let zone = zones::find(&schedule.time_zone).ok_or_else(|| Error::TimeZone(schedule.time_zone.clone()))?;
    let length = SignedDuration::from_secs(i64::from(schedule.duration_seconds));
    // An expression such as 30 February never matches.
    let Ok(begun) = cron.find_previous_occurrence(&now.to_zoned(zone), true) else { return Ok(false) };
    Ok(now.duration_since(begun.timestamp()) < length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crd::autoscaling::{ScaleDown, ScaleUp};

    fn with(schedules: Vec<Schedule>) -> Autoscaling {
        Autoscaling {
            min_replicas: 1,
            max_replicas: 10,
            min_idle: 0,
            poll_seconds: 1,
            scale_up: ScaleUp::default(),
            scale_down: ScaleDown::default(),
            schedules,
        }
    }

    fn schedule(cron: &str, zone: &str, hours: i32, min_replicas: i32) -> Schedule {
        Schedule {
            cron: cron.to_owned(),
            time_zone: zone.to_owned(),
            duration_seconds: hours * 3600,
            min_replicas,
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_schedule_holds_for_its_duration_in_its_time_zone() {
        let pool = with(vec![schedule("0 8 * * 1-5", "Europe/Berlin", 2, 5)]);
        // Monday, 23 November 2026: Berlin is one hour ahead of UTC.
        for (now, least) in [
            ("2026-11-23T06:59:59Z", 1),
            ("2026-11-23T07:00:00Z", 5),
            ("2026-11-23T08:59:59Z", 5),
            ("2026-11-23T09:00:00Z", 1),
            ("2026-11-22T07:30:00Z", 1),
            // Monday in summer: two hours ahead.
            ("2026-07-06T05:59:59Z", 1),
            ("2026-07-06T06:00:00Z", 5),
            ("2026-07-06T08:00:00Z", 1),
        ] {
            assert_eq!(minimum(&pool, at(now)), Ok(least), "{now}");
        }
    }

    #[test]
    fn the_greatest_of_several_counts() {
        let pool = with(vec![schedule("0 8 * * *", "UTC", 4, 3), schedule("0 9 * * *", "UTC", 1, 6)]);
        assert_eq!(minimum(&pool, at("2026-11-23T09:30:00Z")), Ok(6));
        assert_eq!(minimum(&pool, at("2026-11-23T10:30:00Z")), Ok(3));
    }

    #[test]
    fn malformed_schedules_are_named() {
        let cron = with(vec![schedule("every day", "UTC", 1, 3)]);
        assert_eq!(minimum(&cron, Timestamp::UNIX_EPOCH), Err(Error::Cron("every day".to_owned())));
        let zone = with(vec![schedule("0 8 * * *", "Mars", 1, 3)]);
        assert_eq!(minimum(&zone, Timestamp::UNIX_EPOCH), Err(Error::TimeZone("Mars".to_owned())));
    }
}
