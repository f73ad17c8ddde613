//! Detects that the machine's wall clock was changed, by comparing it with the monotonic clock.

use coder_domain::Timestamp;
use jiff::SignedDuration;
use tokio::time::Instant;

/// The two clocks at the last check.
#[derive(Debug, Default)]
pub(super) struct ClockJump(Option<(Timestamp, Instant)>);

impl ClockJump {
    /// Whether the wall clock moved by more than `limit` against the monotonic clock since the last check.
    pub(super) fn is_set(&mut self, now: Timestamp, limit: SignedDuration) -> bool {
        let at = Instant::now();
        let Some((then, before)) = self.0.replace((now, at)) else { return false };
        let passed = SignedDuration::try_from(at - before).unwrap_or(SignedDuration::MAX);
        now.duration_since(then).checked_sub(passed).is_none_or(|moved| moved.abs() > limit)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_is_set_forward_or_back_is_noticed_once() {
        let limit = SignedDuration::from_secs(10);
        let (mut jump, mut now) = (ClockJump::default(), Timestamp::UNIX_EPOCH);
        assert!(!jump.is_set(now, limit), "the first check has no earlier value");
        for (passed, moved, expected) in [
            (1, 1, false),
            (60, 60, false),
            (1, 12, true),
            (1, 1, false),
            (1, 11, false),
            (1, -3600, true),
            (0, 0, false),
        ] {
            tokio::time::advance(Duration::from_secs(passed)).await;
            now += SignedDuration::from_secs(moved);
            assert_eq!(jump.is_set(now, limit), expected, "{passed} s passed, the clock moved by {moved} s");
        }
    }
}
