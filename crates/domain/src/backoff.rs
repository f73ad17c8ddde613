//! Delays between attempts.

use std::time::Duration;

/// How much each delay is longer than the one before: the official daemon uses the golden ratio (wire-protocol 1.7).
const GROWTH: f64 = 1.618;
/// The part of a delay that may be taken off at random.
const JITTER: f64 = 0.2;

/// Delays that grow from `first` to `max`.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    max: Duration,
    next: Duration,
    has_jitter: bool,
}

impl Backoff {
    /// Delays between two bounds.
    #[must_use]
    pub const fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first, has_jitter: false }
    }

    /// The same delays, each shortened by up to a fifth at random, so that many clients do not retry at once.
    #[must_use]
    pub const fn with_jitter(self) -> Self {
        Self { has_jitter: true, ..self }
    }

    pub fn next_delay(&mut self) -> Duration {
        let delay = self.next.min(self.max);
        self.next = delay.mul_f64(GROWTH).min(self.max);
        if !self.has_jitter {
            return delay;
        }
        // A random UUID is a sufficient source of randomness: cryptographic quality is not needed.
        let random = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / f64::from(u8::MAX);
        delay.mul_f64(JITTER.mul_add(-random, 1.0))
    }

    /// Starts again with the first delay, after an attempt succeeded.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn millis(mut backoff: Backoff, count: usize) -> Vec<u128> {
        (0..count).map(|_| backoff.next_delay().as_millis()).collect()
    }

    #[test]
    fn delays_grow_by_the_golden_ratio_up_to_the_bound() {
        let backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(300));
        assert_eq!(millis(backoff, 6), [50, 80, 130, 211, 300, 300]);
        let inverted = Backoff::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(millis(inverted, 2), [1000, 1000], "the bound holds for the first delay too");
    }

    #[test]
    fn a_reset_starts_again() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
        assert!(backoff.next_delay() < backoff.next_delay());
        backoff.reset();
        assert_eq!(backoff.next_delay(), Duration::from_millis(50));
    }

    #[test]
    fn jitter_spreads_the_same_delay() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).with_jitter();
        let delays: std::collections::BTreeSet<_> = millis(backoff, 64).into_iter().collect();
        assert!(delays.len() > 4, "{delays:?}");
    }

    proptest! {
        #[test]
        fn jitter_takes_off_at_most_a_fifth(first in 1_u64..100_000, max in 1_u64..100_000, count in 1_usize..20) {
            let plain = Backoff::new(Duration::from_micros(first), Duration::from_micros(max));
            let mut random = plain.clone().with_jitter();
            let mut plain = plain;
            for _ in 0..count {
                let (longest, delay) = (plain.next_delay(), random.next_delay());
                prop_assert!(delay <= longest && delay >= longest.mul_f64(0.79), "{delay:?} {longest:?}");
            }
        }
    }
}
