//! When to try again: growing pauses with a little randomness, so that many clients do not come back at once.

use std::time::Duration;

/// Pauses that grow by the golden ratio from `first` to `most`, each shortened by up to a fifth at random.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    /// The official daemon's pauses: 50 ms to 10 s (wire-protocol 1.7).
    #[must_use]
    pub const fn official() -> Self {
        Self::new(Duration::from_millis(50), Duration::from_secs(10))
    }

    /// Pauses between two bounds.
    #[must_use]
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.most);
        self.next = pause.mul_f64(1.618).min(self.most);
        // A random UUID is the randomness at hand; cryptographic quality is not needed.
        let share = f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / f64::from(u8::MAX);
        pause.mul_f64(0.2_f64.mul_add(-share, 1.0))
    }

    /// Starts again with the shortest pause, after something worked.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_bound_and_start_again() {
        let mut backoff = Backoff::official();
        let pauses: Vec<_> = (0..20).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= Duration::from_millis(50) && pauses[0] >= Duration::from_millis(40));
        assert!(pauses[19] <= Duration::from_secs(10) && pauses[19] >= Duration::from_secs(8));
        backoff.reset();
        assert!(backoff.pause() <= Duration::from_millis(50));
    }
}
