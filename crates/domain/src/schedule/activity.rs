//! Activity extends the deadline of a workspace.

use jiff::{SignedDuration, Timestamp};

use super::cron::Schedule;
use super::deadline::next_autostart;
use super::rules::TemplateRules;

/// A started workspace with a deadline.
#[derive(Clone, Copy, Debug)]
pub struct Started<'a> {
    pub rules: &'a TemplateRules,
    pub deadline: Timestamp,
    pub max_deadline: Option<Timestamp>,
    /// The time to live that the workspace asks for.
    pub ttl: Option<SignedDuration>,
    /// Its own schedule.
    pub autostart: Option<&'a Schedule>,
}

/// The deadline after activity now; none when it stays. It never moves back, and never behind the latest one. It moves when a
/// twentieth of the extension has passed, so that a busy workspace is not written every second.
#[must_use]
pub fn bump(workspace: &Started<'_>, now: Timestamp) -> Option<Timestamp> {
    let Started { rules, deadline, max_deadline, ttl, autostart } = *workspace;
    let bump = rules.activity_bump;
    if !bump.is_positive() {
        return None;
    }
    let extended = now.checked_add(bump).ok()?;
    let start = autostart.and_then(|schedule| next_autostart(rules, schedule, now));
    let target = match (start, rules.time_to_live(ttl)) {
        // After the next start the deadline is computed as if the workspace had started then.
        (Some(start), Some(ttl)) if start < extended => start.checked_add(ttl).ok()?.max(extended),
        _ => extended,
    };
    let length = target.duration_since(now);
    if deadline.checked_sub(length - length / 20).is_ok_and(|due| due >= now) {
        return None;
    }
    let target = max_deadline.map_or(target, |max| target.min(max));
    (target > deadline).then_some(target)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::rules::tests::DEFAULT;
    use super::*;

    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn started(deadline: Timestamp) -> Started<'static> {
        Started { rules: &DEFAULT, deadline, max_deadline: None, ttl: Some(MINUTE), autostart: None }
    }

    #[test]
    fn activity_extends_by_the_bump_of_the_template() {
        let now = at("2026-11-23T10:00:00Z");
        let hour = MINUTE * 60;
        assert_eq!(bump(&started(now + MINUTE), now), Some(now + hour));
        // Less than a twentieth of it has passed.
        assert_eq!(bump(&started(now + hour - MINUTE), now), None);
        assert_eq!(bump(&started(now + hour - MINUTE * 4), now), Some(now + hour));
        assert_eq!(bump(&started(now + hour * 8), now), None, "a deadline never moves back");
        let limited = Started { max_deadline: Some(now + MINUTE * 30), ..started(now + MINUTE) };
        assert_eq!(bump(&limited, now), Some(now + MINUTE * 30));
        let none = TemplateRules { activity_bump: SignedDuration::ZERO, ..DEFAULT };
        assert_eq!(bump(&Started { rules: &none, ..started(now + MINUTE) }, now), None);
    }

    #[test]
    fn activity_shortly_before_the_next_start_extends_as_that_start_would() {
        let (schedule, now) = (Schedule::weekly("30 10 * * *").unwrap(), at("2026-11-23T10:00:00Z"));
        let workspace =
            Started { ttl: Some(MINUTE * 480), autostart: Some(&schedule), ..started(now + MINUTE) };
        assert_eq!(bump(&workspace, now), Some(at("2026-11-23T18:30:00Z")));
        // Then the extension ends with the next start, or before it.
        for now in [at("2026-11-23T09:30:00Z"), at("2026-11-23T09:00:00Z")] {
            let workspace = Started { deadline: now + MINUTE, ..workspace };
            assert_eq!(bump(&workspace, now), Some(now + MINUTE * 60));
        }
        let without = Started { ttl: None, ..workspace };
        assert_eq!(bump(&without, now), Some(now + MINUTE * 60));
    }

    proptest! {
        #[test]
        fn a_deadline_moves_only_ahead_and_within_its_limit(
            left in -100_000_i64..1_000_000, max in proptest::option::of(0_i64..1_000_000),
            bumped in 0_i64..1_000_000, ttl in proptest::option::of(60_i64..2_000_000), scheduled in proptest::bool::ANY,
        ) {
            let now = at("2026-03-28T23:30:00Z");
            let after = |seconds| now + SignedDuration::from_secs(seconds);
            let schedule = Schedule::weekly("CRON_TZ=Europe/Berlin 30 2 * * *").unwrap();
            let rules = TemplateRules { activity_bump: SignedDuration::from_secs(bumped), ..DEFAULT };
            let workspace = Started {
                rules: &rules,
                deadline: after(left),
                max_deadline: max.map(after),
                ttl: ttl.map(SignedDuration::from_secs),
                autostart: scheduled.then_some(&schedule),
            };
            if let Some(moved) = bump(&workspace, now) {
                prop_assert!(moved > workspace.deadline);
                prop_assert!(workspace.max_deadline.is_none_or(|max| moved <= max));
                let again = Started { deadline: moved, ..workspace };
                prop_assert_eq!(bump(&again, now), None, "a second report at once changes nothing");
            }
        }
    }
}
