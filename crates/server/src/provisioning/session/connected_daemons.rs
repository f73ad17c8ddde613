//! The daemons connected to this process: whose last-seen instant is refreshed, what they hold, and which connections to
//! close or to tell something.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::key::Sha256Digest;
use tokio_util::sync::CancellationToken;

use super::held_jobs::Hand;

/// Whose a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// The daemon's row.
    pub daemon: DaemonId,
    /// Its organization.
    pub organization: OrganizationId,
    /// The key it joined with; a reserved one for other ways.
    pub key: KeyId,
    /// The user whose token it joined with, if it did.
    pub user: Option<UserId>,
    /// The id of that token.
    pub token: Option<Arc<str>>,
    /// Whether it takes that user's jobs only.
    pub is_personal: bool,
    /// Whether it cannot be told to leave.
    pub is_deaf: bool,
    /// Since when its process is known: when it joined, or when it got its session.
    pub since: Timestamp,
}

/// How to close a connection, and what it holds.
pub type Ends = Vec<(CancellationToken, Arc<Hand>)>;

#[derive(Clone, Debug)]
struct Entry {
    who: Who,
    close: CancellationToken,
    hand: Arc<Hand>,
    /// What the daemon's row calls this connection while it names it, until it ends.
    row: Option<Arc<str>>,
    /// Fires when the terms of its key are to be looked at again.
    recheck: Arc<tokio::sync::Notify>,
}

#[derive(Debug, Default)]
struct Entries {
    sessions: HashMap<u64, Entry>,
    /// The newest connection of each daemon process.
    attached: HashMap<Sha256Digest, u64>,
    last: u64,
}

/// The list; a clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct Connected(Arc<Mutex<Entries>>);

impl Connected {
    /// Notes a session until the returned value is dropped. `close` fires when it must end.
    pub fn add(&self, who: Who, close: CancellationToken, hand: Arc<Hand>) -> Connection {
        let mut entries = self.entries();
        entries.last += 1;
        let number = entries.last;
        let recheck = Arc::default();
        entries.sessions.insert(number, Entry { who, close, hand, row: None, recheck: Arc::clone(&recheck) });
        Connection { number, recheck, list: self.clone() }
    }

    /// Each daemon once.
    #[must_use]
    pub fn daemons(&self) -> Vec<DaemonId> {
        let daemons: BTreeSet<_> = self.entries().sessions.values().map(|entry| entry.who.daemon).collect();
        daemons.into_iter().collect()
    }

    /// The users with whose tokens daemons joined, each once, with the organizations of the daemons and whether these
    /// are for their users alone.
    #[must_use]
    pub fn users(&self) -> BTreeSet<(UserId, OrganizationId, bool)> {
        let entries = self.entries();
        let of_users = entries.sessions.values();
        let joined = |who: &Who| Some((who.user?, who.organization, who.is_personal));
        of_users.filter_map(|entry| joined(&entry.who)).collect()
    }

    /// The tokens of these users with which daemons joined, each once.
    #[must_use]
    pub fn tokens(&self, of: &[UserId]) -> BTreeSet<String> {
        let entries = self.entries();
        let meant =
            entries.sessions.values().filter(|entry| entry.who.user.is_some_and(|user| of.contains(&user)));
        meant.filter_map(|entry| entry.who.token.as_deref().map(str::to_owned)).collect()
    }

    /// The keys with which daemons joined, each once.
    #[must_use]
    pub fn keys(&self) -> Vec<KeyId> {
        let keys: BTreeSet<_> = self.entries().sessions.values().map(|entry| entry.who.key).collect();
        keys.into_iter().collect()
    }

    /// The organizations of the daemons, each once.
    #[must_use]
    pub fn organizations(&self) -> Vec<OrganizationId> {
        let all: BTreeSet<_> = self.entries().sessions.values().map(|entry| entry.who.organization).collect();
        all.into_iter().collect()
    }

    /// The jobs that connected daemons hold.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobId> {
        let hands: Vec<_> = self.entries().sessions.values().map(|entry| Arc::clone(&entry.hand)).collect();
        hands.iter().flat_map(|hand| hand.jobs()).map(|(job, _)| job).collect()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().sessions.len()
    }

    /// Whether anybody was ever connected.
    #[must_use]
    pub fn has_had_any(&self) -> bool {
        self.entries().last > 0
    }

    /// Whether nobody is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What the daemon's row calls this connection; none when that has ended.
    pub fn set_row(&self, connection: &Connection, row: Option<Arc<str>>) {
        if let Some(entry) = self.entries().sessions.get_mut(&connection.number) {
            entry.row = row;
        }
    }

    /// What the daemon's row calls, or may call, its newest connection here.
    #[must_use]
    pub fn row(&self, daemon: DaemonId) -> Option<Arc<str>> {
        let entries = self.entries();
        let of_daemon = entries.sessions.iter().filter(|(_, entry)| entry.who.daemon == daemon);
        let named = of_daemon.filter_map(|(number, entry)| Some((number, entry.row.clone()?)));
        named.max_by_key(|(number, _)| *number).map(|(_, row)| row)
    }

    /// The connection becomes that of this daemon process, which got its session at `since`; an older one is closed, and
    /// what it still says is refused.
    pub fn attach(&self, connection: &Connection, session: Sha256Digest, since: Timestamp) {
        let mut entries = self.entries();
        let Some(entry) = entries.sessions.get_mut(&connection.number) else { return };
        entry.who.since = since;
        entry.hand.attach(session);
        entry.hand.came(since);
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
    pub fn is_attached(&self, session: &Sha256Digest) -> bool {
        self.entries().attached.contains_key(session)
    }

    /// Asks the processes of a daemon to leave that were there at `asked_at`; returns how many connections were told.
    /// Those without the extension `drain` are handed no more jobs until [`Self::undrain`], whenever they came.
    pub fn drain(&self, daemon: DaemonId, reason: &str, asked_at: Timestamp) -> usize {
        let entries = self.entries();
        let mut told = 0;
        // Under the lock, so that a process which attaches meanwhile is told either here or there.
        for entry in entries.sessions.values().filter(|entry| entry.who.daemon == daemon) {
            if entry.who.is_deaf {
                entry.hand.park(true);
            } else if entry.who.since > asked_at {
                entry.hand.pass_over(reason, asked_at);
                continue;
            }
            entry.hand.drain(reason);
            told += 1;
        }
        told
    }

    /// The processes of these daemons that could not be told to leave take jobs again; returns how many these are.
    pub fn undrain(&self, is_meant: impl Fn(DaemonId) -> bool) -> usize {
        let entries = self.entries();
        let meant = entries.sessions.values().filter(|entry| entry.who.is_deaf && is_meant(entry.who.daemon));
        meant.filter(|entry| entry.hand.park(false)).count()
    }

    /// Somebody asked to stop a job that a daemon has; it is told at once if it is connected here.
    pub fn cancel(&self, job: JobId, at: Timestamp) {
        self.holding(job, |hand| hand.cancel(job, at));
    }

    /// A job has ended. With a reason the server ended it, and a daemon that is connected here is told to let go.
    pub fn ended(&self, job: JobId, reason: Option<&str>) {
        self.holding(job, |hand| hand.end(job, reason));
    }

    /// The connections of which this is true.
    #[must_use]
    pub fn that(&self, meant: impl Fn(&Who) -> bool) -> Ends {
        let entries = self.entries();
        let that = entries.sessions.values().filter(|entry| meant(&entry.who));
        that.map(|entry| (entry.close.clone(), Arc::clone(&entry.hand))).collect()
    }

    /// The terms of a key are others now: its sessions look at them again.
    pub fn recheck_key(&self, key: KeyId) {
        for entry in self.entries().sessions.values().filter(|entry| entry.who.key == key) {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(daemon: DaemonId, key: KeyId) -> Who {
        let (organization, since) = (OrganizationId::NIL, Timestamp::UNIX_EPOCH);
        Who { daemon, organization, key, user: None, token: None, is_personal: false, is_deaf: false, since }
    }

    fn add(list: &Connected, daemon: DaemonId, key: KeyId) -> (Connection, CancellationToken, Arc<Hand>) {
        add_as(list, who(daemon, key))
    }

    fn add_as(list: &Connected, who: Who) -> (Connection, CancellationToken, Arc<Hand>) {
        let (close, hand) = (CancellationToken::new(), Arc::new(Hand::default()));
        (list.add(who, close.clone(), Arc::clone(&hand)), close, hand)
    }

    #[test]
    fn sessions_are_found_by_their_key_and_gone_ones_forgotten() {
        let connected = Connected::default();
        let (daemon, key) = (DaemonId::random(), KeyId::random());
        let one = add(&connected, daemon, key);
        let two = add(&connected, daemon, key);
        let three = add(&connected, DaemonId::random(), KeyId::PSK);
        assert_eq!((connected.daemons().len(), connected.keys().len()), (2, 2));
        drop(two.0);
        let of_key = connected.that(|who| who.key == key);
        assert_eq!(of_key.len(), 1);
        of_key[0].0.cancel();
        assert!(one.1.is_cancelled() && !two.1.is_cancelled() && !three.1.is_cancelled());
        drop((one, three));
        assert!(connected.is_empty());
    }

    #[test]
    fn the_newest_connection_of_a_process_closes_the_older_one() {
        let (connected, daemon, session) = (Connected::default(), DaemonId::random(), Sha256Digest([7; 32]));
        let first = add(&connected, daemon, KeyId::PSK);
        let stranger = add(&connected, daemon, KeyId::PSK);
        connected.attach(&first.0, session, Timestamp::UNIX_EPOCH);
        connected.attach(&stranger.0, Sha256Digest([8; 32]), Timestamp::UNIX_EPOCH);
        assert!(!first.1.is_cancelled(), "another process of the same name is no newer connection");
        let second = add(&connected, daemon, KeyId::PSK);
        connected.attach(&second.0, session, Timestamp::UNIX_EPOCH);
        assert!(first.1.is_cancelled() && first.2.is_superseded());
        assert!(!second.1.is_cancelled() && !stranger.1.is_cancelled());
        // The older one leaves late.
        drop(first);
        assert!(connected.is_attached(&session));
        drop(second);
        assert!(!connected.is_attached(&session));
    }

    #[test]
    fn a_drain_is_for_the_processes_that_are_there() {
        let (connected, daemon) = (Connected::default(), DaemonId::random());
        let later = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
        let (there, new) = (add(&connected, daemon, KeyId::PSK), add(&connected, daemon, KeyId::PSK));
        let official = add_as(&connected, Who { is_deaf: true, since: later, ..who(daemon, KeyId::PSK) });
        let other = add(&connected, DaemonId::random(), KeyId::PSK);
        connected.attach(&there.0, Sha256Digest([7; 32]), Timestamp::UNIX_EPOCH);
        connected.attach(&new.0, Sha256Digest([8; 32]), later);
        assert_eq!(connected.drain(daemon, "make room", Timestamp::UNIX_EPOCH), 2);
        assert!(!official.2.is_retired());
        let words = |hand: &Hand| hand.words(Timestamp::UNIX_EPOCH, std::time::Duration::MAX).0.len();
        assert_eq!((words(&there.2), words(&new.2), words(&other.2)), (1, 0, 0));
        assert!(official.2.is_parked() && !there.2.is_parked() && !other.2.is_parked());
        let undrain = || connected.undrain(|freed| freed == daemon);
        assert_eq!((undrain(), undrain()), (1, 0));
        assert!(!official.2.is_parked());
    }

    #[test]
    fn a_drain_is_for_a_process_whose_age_shows_only_when_it_attaches() {
        let (connected, daemon) = (Connected::default(), DaemonId::random());
        let at = |second| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(second);
        let came_back = |session, since| {
            let line = add_as(&connected, Who { since: at(3), ..who(daemon, KeyId::PSK) });
            // Asked for at second two by a request that ends while this process is coming back.
            assert_eq!(connected.drain(daemon, "make room", at(2)), 0);
            connected.attach(&line.0, Sha256Digest([session; 32]), at(since));
            line.2.words(at(3), std::time::Duration::MAX).0.len()
        };
        assert_eq!((came_back(7, 1), came_back(8, 3)), (1, 0));
    }

    #[test]
    fn what_a_row_said_does_not_undo_what_came_after_it_was_read() {
        for drained in [true, false] {
            let (connected, daemon) = (Connected::default(), DaemonId::random());
            let line = add_as(&connected, Who { is_deaf: true, ..who(daemon, KeyId::PSK) });
            let before = line.2.parkings();
            // Here its row is read, which is about to change.
            if drained {
                connected.drain(daemon, "make room", Timestamp::UNIX_EPOCH);
            } else {
                connected.undrain(|_| true);
            }
            line.2.park_unless_newer(!drained, before);
            assert_eq!(line.2.is_parked(), drained);
            line.2.park_unless_newer(!drained, line.2.parkings());
            assert_ne!(line.2.is_parked(), drained, "nothing came in between");
        }
    }
}
