//! Mutual exclusion per key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// One lock for each key that is locked or waited for; clones share them.
#[derive(Debug)]
pub(crate) struct KeyedMutex<K> {
    locks: Arc<Mutex<HashMap<K, Weak<tokio::sync::Mutex<()>>>>>,
}

impl<K> Default for KeyedMutex<K> {
    fn default() -> Self {
        Self { locks: Arc::default() }
    }
}

impl<K> Clone for KeyedMutex<K> {
    fn clone(&self) -> Self {
        Self { locks: Arc::clone(&self.locks) }
    }
}

impl<K: Eq + Hash> KeyedMutex<K> {
    /// Waits until no other task holds this key.
    pub(crate) async fn lock(&self, key: K) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock();
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(&key).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::default();
                locks.insert(key, Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_at_a_time_for_each_key() {
        let mutex = KeyedMutex::default();
        let first = mutex.lock(1).await;
        drop(mutex.lock(2).await);
        let waiting = tokio::spawn({
            let mutex = mutex.clone();
            async move { drop(mutex.lock(1).await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        drop(mutex.lock(3).await);
        assert_eq!(mutex.locks.lock().len(), 1, "locks that nobody needs are forgotten");
    }
}
