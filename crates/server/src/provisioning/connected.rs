//! The daemons connected to this process: whose last-seen instant is refreshed, and which connections to close.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coder_domain::ids::{DaemonId, KeyId};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
struct Entry {
    daemon: DaemonId,
    key: KeyId,
    close: CancellationToken,
}

#[derive(Debug, Default)]
struct Entries {
    sessions: HashMap<u64, Entry>,
    last: u64,
}

/// The list; a clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct Connected(Arc<Mutex<Entries>>);

impl Connected {
    /// Notes a session until the returned value is dropped. `close` fires when it must end.
    pub fn add(&self, daemon: DaemonId, key: KeyId, close: CancellationToken) -> Connection {
        let mut entries = self.entries();
        entries.last += 1;
        let number = entries.last;
        entries.sessions.insert(number, Entry { daemon, key, close });
        Connection { number, list: self.clone() }
    }

    /// Each daemon once.
    #[must_use]
    pub fn daemons(&self) -> Vec<DaemonId> {
        let daemons: BTreeSet<_> = self.entries().sessions.values().map(|entry| entry.daemon).collect();
        daemons.into_iter().collect()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().sessions.len()
    }

    /// Whether nobody is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Ends the sessions that joined with a key that is gone (CONF-14); returns how many.
    pub fn close_key(&self, key: KeyId) -> usize {
        let entries = self.entries();
        let of_key = entries.sessions.values().filter(|entry| entry.key == key);
        of_key.map(|entry| entry.close.cancel()).count()
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session in the list.
#[derive(Debug)]
pub struct Connection {
    number: u64,
    list: Connected,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.list.entries().sessions.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_of_a_deleted_key_are_closed_and_gone_ones_forgotten() {
        let connected = Connected::default();
        let (daemon, key) = (DaemonId::random(), KeyId::random());
        let (first, second, other) =
            (CancellationToken::new(), CancellationToken::new(), CancellationToken::new());
        let one = connected.add(daemon, key, first.clone());
        let two = connected.add(daemon, key, second.clone());
        let three = connected.add(DaemonId::random(), KeyId::PSK, other.clone());
        assert_eq!(connected.daemons().len(), 2);
        drop(two);
        assert_eq!(connected.close_key(key), 1);
        assert!(first.is_cancelled() && !second.is_cancelled() && !other.is_cancelled());
        drop((one, three));
        assert!(connected.is_empty());
    }
}
