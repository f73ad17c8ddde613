//! Random numbers with a seed, and the length of fault tests.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// The seed of a run, to repeat it.
const SEED: &str = "CODER_TEST_SEED";

/// Enables the long form of fault tests.
const LONG_VARIABLE: &str = "CODER_TEST_LONG";

/// Whether fault tests run in their long form.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os(LONG_VARIABLE).is_some()
}

/// The count of the short or of the long form.
#[must_use]
pub fn count(short: usize, long: usize) -> usize {
    if is_long() { long } else { short }
}

/// A sequence of numbers from a seed.
#[derive(Clone, Debug)]
pub struct Random {
    seed: u64,
    state: u64,
}

impl Random {
    /// A new sequence, or that of the seed in `CODER_TEST_SEED`.
    #[must_use]
    pub fn new() -> Self {
        let given = std::env::var(SEED).ok().and_then(|text| text.parse().ok());
        Self::from_seed(given.unwrap_or_else(|| RandomState::new().hash_one(SEED)))
    }

    /// The sequence of this seed.
    #[must_use]
    pub const fn from_seed(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// The seed of the sequence.
    #[must_use]
    pub const fn seed(&self) -> u64 {
        self.seed
    }

    /// Any number.
    pub const fn bits(&mut self) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// A time below `limit`.
    pub fn time_below(&mut self, limit: Duration) -> Duration {
        let micros = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(micros.max(1)))
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let of = |seed| {
            let mut random = Random::from_seed(seed);
            [random.below(1000), random.below(1000), random.below(1000)]
        };
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        assert!((0..100).all(|_| Random::new().below(3) < 3));
    }
}
