//! When a pool follows what the queue demands.

use jiff::{SignedDuration, Timestamp};

use crate::crd::autoscaling::Autoscaling;

/// What has to be remembered between two decisions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scaling {
    /// The number of daemons that was decided last.
    pub desired: i32,
    /// Since when fewer are needed.
    pub excess_since: Option<Timestamp>,
    /// Most that were needed since then.
    pub excess_peak: i32,
    /// Since when more are needed.
    pub shortage_since: Option<Timestamp>,
    /// When the number was changed last.
    pub changed_at: Option<Timestamp>,
}

/// The next decision. `needed` is within the bounds of the pool, `ready` counts the pods that are ready.
#[must_use]
pub fn decide(config: &Autoscaling, last: &Scaling, needed: i32, ready: i32, now: Timestamp) -> Scaling {
    let passed = |since: Timestamp, seconds: i32| {
        now.duration_since(since) >= SignedDuration::from_secs(i64::from(seconds))
    };
    let changed = |desired: i32| Scaling { desired, changed_at: Some(now), ..Scaling::default() };
    let bound = last.desired.min(config.max_replicas);
    if bound < last.desired {
        // The bound was lowered. Busy daemons stay nevertheless: see `victims`.
        return changed(bound);
    }
    if needed > last.desired {
        let since = last.shortage_since.unwrap_or(now);
        let waits_for_ready = config.scale_up.max_step.is_some() && ready < last.desired;
        if !passed(since, config.scale_up.stabilization_seconds) || waits_for_ready {
            return Scaling {
                shortage_since: Some(since),
                excess_since: None,
                excess_peak: 0,
                ..last.clone()
            };
        }
        let step = config.scale_up.max_step.unwrap_or(i32::MAX);
        return changed(needed.min(last.desired.saturating_add(step)));
    }
    if needed < last.desired {
        let since = last.excess_since.unwrap_or(now);
        let peak = if last.excess_since.is_some() { last.excess_peak.max(needed) } else { needed };
        if !passed(since, config.scale_down.stabilization_seconds) {
            return Scaling {
                excess_since: Some(since),
                excess_peak: peak,
                shortage_since: None,
                ..last.clone()
            };
        }
        return changed(peak);
    }
    Scaling { excess_since: None, excess_peak: 0, shortage_since: None, ..last.clone() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::crd::autoscaling::{ScaleDown, ScaleUp};

    fn config(up: i32, step: Option<i32>, down: i32) -> Autoscaling {
        Autoscaling {
            min_replicas: 0,
            max_replicas: 20,
            min_idle: 0,
            poll_seconds: 1,
            scale_up: ScaleUp { stabilization_seconds: up, max_step: step },
            scale_down: ScaleDown { stabilization_seconds: down },
            schedules: Vec::new(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn growing_is_immediate_by_default() {
        let next = decide(&config(0, None, 300), &Scaling::default(), 7, 0, at(0));
        assert_eq!((next.desired, next.changed_at), (7, Some(at(0))));
    }

    #[test]
    fn growing_waits_for_its_stabilization() {
        let config = config(30, None, 300);
        let mut state = decide(&config, &Scaling::default(), 7, 0, at(0));
        assert_eq!(state.desired, 0);
        state = decide(&config, &state, 7, 0, at(29));
        assert_eq!(state.desired, 0);
        assert_eq!(decide(&config, &state, 7, 0, at(30)).desired, 7);
        let interrupted = decide(&config, &state, 0, 0, at(29));
        assert_eq!(decide(&config, &interrupted, 7, 0, at(30)).desired, 0, "the time begins again");
    }

    #[test]
    fn steps_wait_until_the_pods_are_ready() {
        let config = config(0, Some(2), 300);
        let first = decide(&config, &Scaling::default(), 5, 0, at(0));
        assert_eq!(first.desired, 2);
        assert_eq!(decide(&config, &first, 5, 1, at(1)).desired, 2);
        assert_eq!(decide(&config, &first, 5, 2, at(2)).desired, 4);
    }

    #[test]
    fn shrinking_goes_to_the_most_that_was_needed_in_its_window() {
        let config = config(0, None, 300);
        let mut state = Scaling { desired: 10, ..Scaling::default() };
        for (second, needed) in [(0, 2), (100, 8), (200, 0), (299, 0)] {
            state = decide(&config, &state, needed, 10, at(second));
            assert_eq!(state.desired, 10, "{second}");
        }
        assert_eq!(decide(&config, &state, 0, 10, at(300)).desired, 8);
    }

    #[test]
    fn a_return_of_the_demand_ends_the_window() {
        let config = config(0, None, 300);
        let low = decide(&config, &Scaling { desired: 4, ..Scaling::default() }, 1, 4, at(0));
        let high = decide(&config, &low, 4, 4, at(299));
        assert_eq!(decide(&config, &high, 1, 4, at(301)).desired, 4);
    }

    #[test]
    fn a_lower_bound_applies_at_once() {
        let mut config = config(0, None, 300);
        config.max_replicas = 3;
        assert_eq!(decide(&config, &Scaling { desired: 9, ..Scaling::default() }, 3, 9, at(0)).desired, 3);
    }

    proptest! {
        #[test]
        fn steady_demand_is_reached_and_then_nothing_changes(
            up in 0..60, step in proptest::option::of(1..5), down in 0..600, start in 0..20, needed in 0..20
        ) {
            let config = config(up, step, down);
            let mut state = Scaling { desired: start, ..Scaling::default() };
            for second in 0..2000 {
                state = decide(&config, &state, needed, state.desired, at(second));
                prop_assert!(state.desired >= start.min(needed) && state.desired <= start.max(needed));
            }
            prop_assert_eq!(state.desired, needed);
            let again = decide(&config, &state, needed, needed, at(3000));
            prop_assert_eq!(again, state, "a reached demand causes no write");
        }
    }
}
