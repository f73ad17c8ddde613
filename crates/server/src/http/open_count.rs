//! Counts what is open for each key, and refuses more than a number.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// How much is open for each key.
pub struct OpenCount<K: Eq + Hash> {
    most: usize,
    open: Mutex<HashMap<K, usize>>,
}

/// The right to one open thing, until it is dropped.
pub struct OpenPermit<K: Eq + Hash> {
    count: Arc<OpenCount<K>>,
    key: K,
}

impl<K: Eq + Hash + Copy> OpenCount<K> {
    /// At most `most` for each key.
    #[must_use]
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// The most that may be open for a key.
    #[must_use]
    pub const fn most(&self) -> usize {
        self.most
    }

    /// Admits another; `None` when there are too many.
    pub fn admit(self: &Arc<Self>, key: K) -> Option<OpenPermit<K>> {
        let mut open = self.open.lock();
        let count = open.entry(key).or_insert(0);
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(OpenPermit { count: Arc::clone(self), key })
    }
}

impl<K: Eq + Hash> Drop for OpenPermit<K> {
    fn drop(&mut self) {
        let mut open = self.count.open.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_a_limit_and_what_is_closed_does_not_count() {
        let count = OpenCount::new(2);
        let held: Vec<_> = (0..2).map(|_| count.admit(1).unwrap()).collect();
        assert!(count.admit(1).is_none());
        assert!(count.admit(2).is_some());
        drop(held);
        assert!(count.open.lock().is_empty());
        assert!(count.admit(1).is_some());
    }
}
