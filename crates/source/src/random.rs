//! Random that is the same in every run, for tests.

use coder_testkit::random;

/// A sequence with what generators of texts need.
pub(crate) struct Random(random::Random);

impl Random {
    pub(crate) const fn from_seed(seed: u64) -> Self {
        Self(random::Random::from_seed(seed))
    }

    pub(crate) const fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).unwrap()
    }

    pub(crate) fn one<'p>(&mut self, pool: &[&'p str]) -> &'p str {
        pool[self.below(pool.len())]
    }
}
