//! The daemons connected to this process: whose last-seen instant is refreshed, what they hold, and which connections to
//! close or to tell something.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, KeyId};
use coder_domain::key::Hashed;
use tokio_util::sync::CancellationToken;

use super::hand::Hand;

#[derive(Clone, Debug)]
struct Entry {
    daemon: DaemonId,
    key: KeyId,
    close: CancellationToken,
    hand: Arc<Hand>,
    /// Fires when the terms of its key are to be looked at again.
    recheck: Arc<tokio::sync::Notify>,
}

#[derive(Debug, Default)]
struct Entries {
    sessions: HashMap<u64, Entry>,
    /// The newest connection of each daemon process.
    attached: HashMap<Hashed, u64>,
    /// Daemon processes that were asked to leave, until they have left.
    draining: HashMap<Hashed, String>,
    last: u64,
}

/// The list; a clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct Connected(Arc<Mutex<Entries>>);

impl Connected {
    /// Notes a session until the returned value is dropped. `close` fires when it must end.
    pub fn add(&self, daemon: DaemonId, key: KeyId, close: CancellationToken, hand: Arc<Hand>) -> Connection {
        let mut entries = self.entries();
        entries.last += 1;
        let number = entries.last;
        let recheck = Arc::default();
        entries.sessions.insert(number, Entry { daemon, key, close, hand, recheck: Arc::clone(&recheck) });
        Connection { number, recheck, list: self.clone() }
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

    /// Whether another connection than `except` belongs to this row.
    #[must_use]
    pub fn is_elsewhere(&self, daemon: DaemonId, except: &Connection) -> bool {
        let entries = self.entries();
        entries.sessions.iter().any(|(number, entry)| entry.daemon == daemon && *number != except.number)
    }

    /// The connection becomes that of this daemon process; an older one is closed, and what it still says is refused.
    pub fn attach(&self, connection: &Connection, session: Hashed) {
        let mut entries = self.entries();
        let Some(entry) = entries.sessions.get(&connection.number).cloned() else { return };
        entry.hand.attach(session);
        if let Some(reason) = entries.draining.get(&session) {
            entry.hand.drain(reason);
        }
        let older = entries.attached.insert(session, connection.number);
        if let Some(older) = older.filter(|older| *older != connection.number)
            && let Some(entry) = entries.sessions.get(&older)
        {
            entry.hand.supersede();
            entry.close.cancel();
        }
    }

    /// Whether a connection of this daemon process is, or was a moment ago, here.
    #[must_use]
    pub fn is_attached(&self, session: &Hashed) -> bool {
        self.entries().attached.contains_key(session)
    }

    /// Asks the processes of a daemon to leave; returns how many connections were told. Those without the extension
    /// `drain` are handed no more jobs, and closed when they hold none.
    pub fn drain(&self, daemon: DaemonId, reason: &str) -> usize {
        let mut entries = self.entries();
        let of_daemon: Vec<_> =
            entries.sessions.values().filter(|entry| entry.daemon == daemon).cloned().collect();
        for entry in &of_daemon {
            match entry.hand.session() {
                Some(session) => drop(entries.draining.insert(session, reason.to_owned())),
                None => entry.hand.retire(),
            }
            entry.hand.drain(reason);
        }
        of_daemon.len()
    }

    /// Somebody asked to stop a job that a daemon has; it is told at once if it is connected here.
    pub fn cancel(&self, job: JobId, at: Timestamp) {
        self.holding(job, |hand| hand.cancel(job, at));
    }

    /// A job has ended. With a reason the server ended it, and a daemon that is connected here is told to let go.
    pub fn ended(&self, job: JobId, reason: Option<&str>) {
        self.holding(job, |hand| hand.end(job, reason));
    }

    /// Ends the sessions that joined with a key that is gone (CONF-14); returns how many. Use
    /// [`super::revoke::key`], which ends their jobs too.
    pub fn close_key(&self, key: KeyId) -> usize {
        let of_key = self.of_key(key);
        for (close, _) in &of_key {
            close.cancel();
        }
        of_key.len()
    }

    /// The connections that joined with a key: how to close each, and what it holds.
    #[must_use]
    pub fn of_key(&self, key: KeyId) -> Vec<(CancellationToken, Arc<Hand>)> {
        let entries = self.entries();
        let of_key = entries.sessions.values().filter(|entry| entry.key == key);
        of_key.map(|entry| (entry.close.clone(), Arc::clone(&entry.hand))).collect()
    }

    /// The terms of a key are others now: its sessions look at them again.
    pub fn recheck_key(&self, key: KeyId) {
        for entry in self.entries().sessions.values().filter(|entry| entry.key == key) {
            entry.recheck.notify_one();
        }
    }

    fn holding(&self, job: JobId, tell: impl Fn(&Hand)) {
        // A look into each connection's own small table, under no lock but theirs.
        let hands: Vec<_> = self.entries().sessions.values().map(|entry| Arc::clone(&entry.hand)).collect();
        for hand in hands.iter().filter(|hand| hand.has(job)) {
            tell(hand);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One session in the list.
#[derive(Debug)]
pub struct Connection {
    number: u64,
    recheck: Arc<tokio::sync::Notify>,
    list: Connected,
}

impl Connection {
    /// Waits until the terms of its key may have changed.
    pub async fn key_changed(&self) {
        self.recheck.notified().await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut entries = self.list.entries();
        let Some(entry) = entries.sessions.remove(&self.number) else { return };
        if let Some(session) = entry.hand.session()
            && entries.attached.get(&session) == Some(&self.number)
        {
            entries.attached.remove(&session);
            // A drained process with nothing in hand has left for good.
            if entry.hand.is_empty() {
                entries.draining.remove(&session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(list: &Connected, daemon: DaemonId, key: KeyId) -> (Connection, CancellationToken, Arc<Hand>) {
        let (close, hand) = (CancellationToken::new(), Arc::new(Hand::default()));
        (list.add(daemon, key, close.clone(), Arc::clone(&hand)), close, hand)
    }

    #[test]
    fn sessions_of_a_deleted_key_are_closed_and_gone_ones_forgotten() {
        let connected = Connected::default();
        let (daemon, key) = (DaemonId::random(), KeyId::random());
        let one = add(&connected, daemon, key);
        let two = add(&connected, daemon, key);
        let three = add(&connected, DaemonId::random(), KeyId::PSK);
        assert_eq!(connected.daemons().len(), 2);
        drop(two.0);
        assert_eq!(connected.close_key(key), 1);
        assert!(one.1.is_cancelled() && !two.1.is_cancelled() && !three.1.is_cancelled());
        drop((one, three));
        assert!(connected.is_empty());
    }

    #[test]
    fn the_newest_connection_of_a_process_closes_the_older_one() {
        let (connected, daemon, session) = (Connected::default(), DaemonId::random(), Hashed([7; 32]));
        let first = add(&connected, daemon, KeyId::PSK);
        let stranger = add(&connected, daemon, KeyId::PSK);
        connected.attach(&first.0, session);
        connected.attach(&stranger.0, Hashed([8; 32]));
        assert!(!first.1.is_cancelled(), "another process of the same name is no newer connection");
        let second = add(&connected, daemon, KeyId::PSK);
        connected.attach(&second.0, session);
        assert!(first.1.is_cancelled() && first.2.is_superseded());
        assert!(!second.1.is_cancelled() && !stranger.1.is_cancelled());
        // The older one leaves late.
        drop(first);
        assert!(connected.is_attached(&session));
        drop(second);
        assert!(!connected.is_attached(&session));
    }

    #[test]
    fn a_drain_follows_the_process_to_its_next_connection() {
        let (connected, daemon, session) = (Connected::default(), DaemonId::random(), Hashed([7; 32]));
        let first = add(&connected, daemon, KeyId::PSK);
        connected.attach(&first.0, session);
        first.2.hold(JobId::random(), Some(1), None, None);
        assert_eq!(connected.drain(daemon, "make room"), 1);
        drop(first);
        let again = add(&connected, daemon, KeyId::PSK);
        connected.attach(&again.0, session);
        let words = |hand: &Hand| hand.words(Timestamp::UNIX_EPOCH, std::time::Duration::MAX).0;
        assert_eq!(words(&again.2).len(), 1);
        drop(again);
        let new = add(&connected, daemon, KeyId::PSK);
        connected.attach(&new.0, session);
        assert!(words(&new.2).is_empty(), "it had left");
        let official = add(&connected, daemon, KeyId::PSK);
        assert_eq!(connected.drain(daemon, "all"), 2);
        assert!(official.2.is_retired() && !new.2.is_retired());
    }
}
