//! The source of the current time. Components receive a clock; tests move one by hand.

use std::sync::atomic::{AtomicI64, Ordering};

use jiff::Timestamp;

/// A source of the current time.
pub trait Clock: Send + Sync + 'static {
    /// The current instant, truncated to microseconds (what the database keeps).
    fn now(&self) -> Timestamp;
}

/// The machine's clock; created in the binary only.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        truncate(Timestamp::now())
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock standing at `start`.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicI64::new(start.as_microsecond()))
    }

    /// Moves the clock forward (or backward, to test jumps).
    pub fn advance(&self, by: jiff::SignedDuration) {
        let micros = i64::try_from(by.as_micros()).expect("tests move the clock by less than 292,000 years");
        self.0.fetch_add(micros, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).expect("a manual clock stays in range")
    }
}

fn truncate(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).expect("an instant stays in range when truncated")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clock_is_read_in_whole_microseconds() {
        let since_epoch = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
        let before = since_epoch();
        let now = SystemClock.now();
        assert_eq!(now.subsec_nanosecond() % 1000, 0);
        let found = u128::try_from(now.as_microsecond()).unwrap();
        assert!((before..=since_epoch()).contains(&found), "{now}");
    }

    #[test]
    fn a_manual_clock_moves_only_by_hand() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), clock.now());
        clock.advance(jiff::SignedDuration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
    }
}
