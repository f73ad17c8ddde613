//! The daemons that are connected to this process, with the jobs that they hold.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId, UserId};
use coder_domain::key::Sha256Digest;
use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use super::held_jobs::HeldJobs;

/// The daemon of a connection, and how it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonIdentity {
    /// The daemon's row.
    pub daemon: DaemonId,
    pub organization: OrganizationId,
    /// The key that it joined with; a reserved id for other credentials.
    pub key: KeyId,
    /// The user whose token it joined with, if any.
    pub user: Option<UserId>,
    /// The id of that token.
    pub token: Option<Arc<str>>,
    /// Whether it takes only that user's jobs.
    pub is_personal: bool,
    /// Whether it lacks the extension `drain`.
    pub cannot_drain: bool,
    /// When it joined, or when its process got its session.
    pub since: Timestamp,
}

/// Connections: how to close each, and its jobs.
pub type OpenConnections = Vec<(CancellationToken, Arc<HeldJobs>)>;

#[derive(Clone, Debug)]
struct Entry {
    identity: DaemonIdentity,
    close: CancellationToken,
    held_jobs: Arc<HeldJobs>,
    /// The id of this connection in the daemon's row.
    row: Option<Arc<str>>,
    /// Fires when its key must be checked again.
    recheck: Arc<tokio::sync::Notify>,
}

#[derive(Debug, Default)]
struct Entries {
    sessions: HashMap<u64, Entry>,
    /// The newest connection of each daemon process.
    attached: HashMap<Sha256Digest, u64>,
    last: u64,
}

/// The list of connections. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectedDaemons(Arc<Mutex<Entries>>);

impl ConnectedDaemons {
    /// Adds a connection until the returned value is dropped. `close` fires when it must end.
    pub fn add(
        &self,
        identity: DaemonIdentity,
        close: CancellationToken,
        held_jobs: Arc<HeldJobs>,
    ) -> DaemonRegistration {
        let mut entries = self.entries();
        entries.last += 1;
        let number = entries.last;
        let recheck = Arc::default();
        entries
            .sessions
            .insert(number, Entry { identity, close, held_jobs, row: None, recheck: Arc::clone(&recheck) });
        DaemonRegistration { number, recheck, list: self.clone() }
    }

    /// The ids of the daemons, each once.
    #[must_use]
    pub fn daemons(&self) -> Vec<DaemonId> {
        let daemons: BTreeSet<_> =
            self.entries().sessions.values().map(|entry| entry.identity.daemon).collect();
        daemons.into_iter().collect()
    }

    /// The users with whose tokens daemons joined, each once, with the organization of the daemon and whether it is personal.
    #[must_use]
    pub fn users(&self) -> BTreeSet<(UserId, OrganizationId, bool)> {
        let entries = self.entries();
        let of_users = entries.sessions.values();
        let joined =
            |identity: &DaemonIdentity| Some((identity.user?, identity.organization, identity.is_personal));
        of_users.filter_map(|entry| joined(&entry.identity)).collect()
    }

    /// The tokens of these users with which daemons joined, each once.
    #[must_use]
    pub fn tokens(&self, of: &[UserId]) -> BTreeSet<String> {
        let entries = self.entries();
        let meant = entries
            .sessions
            .values()
            .filter(|entry| entry.identity.user.is_some_and(|user| of.contains(&user)));
        meant.filter_map(|entry| entry.identity.token.as_deref().map(str::to_owned)).collect()
    }

    /// The keys with which daemons joined, each once.
    #[must_use]
    pub fn keys(&self) -> Vec<KeyId> {
        let keys: BTreeSet<_> = self.entries().sessions.values().map(|entry| entry.identity.key).collect();
        keys.into_iter().collect()
    }

    /// The organizations of the daemons, each once.
    #[must_use]
    pub fn organizations(&self) -> Vec<OrganizationId> {
        let all: BTreeSet<_> =
            self.entries().sessions.values().map(|entry| entry.identity.organization).collect();
        all.into_iter().collect()
    }

    /// The jobs that connected daemons hold.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobId> {
        let held: Vec<_> =
            self.entries().sessions.values().map(|entry| Arc::clone(&entry.held_jobs)).collect();
        held.iter().flat_map(|held_jobs| held_jobs.jobs()).map(|(job, _)| job).collect()
    }

    /// How many sessions there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries().sessions.len()
    }

    /// Whether a daemon was ever connected.
    #[must_use]
    pub fn has_had_any(&self) -> bool {
        self.entries().last > 0
    }

    /// Whether no daemon is connected.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the id of this connection in the daemon's row; `None` when it has ended.
    pub fn set_row(&self, connection: &DaemonRegistration, row: Option<Arc<str>>) {
        if let Some(entry) = self.entries().sessions.get_mut(&connection.number) {
            entry.row = row;
        }
    }

    /// The id of the newest connection of a daemon here.
    #[must_use]
    pub fn row(&self, daemon: DaemonId) -> Option<Arc<str>> {
        let entries = self.entries();
        let of_daemon = entries.sessions.iter().filter(|(_, entry)| entry.identity.daemon == daemon);
        let named = of_daemon.filter_map(|(number, entry)| Some((number, entry.row.clone()?)));
        named.max_by_key(|(number, _)| *number).map(|(_, row)| row)
    }

    /// Assigns the connection to a daemon process, which got its session at `since`. An older connection of that process is
    /// closed, and its messages are refused.
    pub fn attach(&self, connection: &DaemonRegistration, session: Sha256Digest, since: Timestamp) {
        let mut entries = self.entries();
        let Some(entry) = entries.sessions.get_mut(&connection.number) else { return };
        entry.identity.since = since;
        entry.held_jobs.attach(session);
        entry.held_jobs.set_started_at(since);
        let older = entries.attached.insert(session, connection.number);
        if let Some(older) = older.filter(|older| *older != connection.number)
            && let Some(entry) = entries.sessions.get(&older)
        {
            entry.held_jobs.supersede();
            entry.close.cancel();
        }
    }

    /// Whether this daemon process is connected here.
    #[must_use]
    pub fn is_attached(&self, session: &Sha256Digest) -> bool {
        self.entries().attached.contains_key(session)
    }

    /// Drains the processes of a daemon that were connected at `asked_at`. Returns how many connections were notified.
    /// Daemons without the extension `drain` get no more jobs until [`Self::undrain`], whenever they connected.
    pub fn drain(&self, daemon: DaemonId, reason: &str, asked_at: Timestamp) -> usize {
        let entries = self.entries();
        let mut told = 0;
        // Under the lock: a process that attaches meanwhile is notified either here or when it attaches.
        for entry in entries.sessions.values().filter(|entry| entry.identity.daemon == daemon) {
            if entry.identity.cannot_drain {
                entry.held_jobs.set_paused(true);
            } else if entry.identity.since > asked_at {
                entry.held_jobs.skip_drain(reason, asked_at);
                continue;
            }
            entry.held_jobs.drain(reason);
            told += 1;
        }
        told
    }

    /// Daemons without the extension `drain` get jobs again. Returns how many.
    pub fn undrain(&self, is_undrained: impl Fn(DaemonId) -> bool) -> usize {
        let entries = self.entries();
        let meant = entries
            .sessions
            .values()
            .filter(|entry| entry.identity.cannot_drain && is_undrained(entry.identity.daemon));
        meant.filter(|entry| entry.held_jobs.set_paused(false)).count()
    }

    /// A running job was canceled. Its daemon is notified at once if it is connected here.
    pub fn cancel(&self, job: JobId, at: Timestamp) {
        self.holding(job, |held_jobs| held_jobs.cancel(job, at));
    }

    /// A job has ended. With a reason the server ended it, and its daemon is notified if it is connected here.
    pub fn ended(&self, job: JobId, reason: Option<&str>) {
        self.holding(job, |held_jobs| held_jobs.end(job, reason));
    }

    /// The connections whose daemon fulfills the condition.
    #[must_use]
    pub fn matching(&self, matches: impl Fn(&DaemonIdentity) -> bool) -> OpenConnections {
        let entries = self.entries();
        let that = entries.sessions.values().filter(|entry| matches(&entry.identity));
        that.map(|entry| (entry.close.clone(), Arc::clone(&entry.held_jobs))).collect()
    }

    /// A key was changed: its sessions check it again.
    pub fn recheck_key(&self, key: KeyId) {
        for entry in self.entries().sessions.values().filter(|entry| entry.identity.key == key) {
            entry.recheck.notify_one();
        }
    }

    fn holding(&self, job: JobId, tell: impl Fn(&HeldJobs)) {
        // Each connection is asked without holding the lock of the list.
        let held: Vec<_> =
            self.entries().sessions.values().map(|entry| Arc::clone(&entry.held_jobs)).collect();
        for held_jobs in held.iter().filter(|held_jobs| held_jobs.has(job)) {
            tell(held_jobs);
        }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock()
    }
}

/// One connection in the list, until it is dropped.
#[derive(Debug)]
pub struct DaemonRegistration {
    number: u64,
    recheck: Arc<tokio::sync::Notify>,
    list: ConnectedDaemons,
}

impl DaemonRegistration {
    /// Waits until its key may have changed.
    pub async fn key_changed(&self) {
        self.recheck.notified().await;
    }
}

impl Drop for DaemonRegistration {
    fn drop(&mut self) {
        let mut entries = self.list.entries();
        let Some(entry) = entries.sessions.remove(&self.number) else { return };
        if let Some(session) = entry.held_jobs.session()
            && entries.attached.get(&session) == Some(&self.number)
        {
            entries.attached.remove(&session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(daemon: DaemonId, key: KeyId) -> DaemonIdentity {
        let (organization, since) = (OrganizationId::NIL, Timestamp::UNIX_EPOCH);
        DaemonIdentity {
            daemon,
            organization,
            key,
            user: None,
            token: None,
            is_personal: false,
            cannot_drain: false,
            since,
        }
    }

    fn add(
        list: &ConnectedDaemons,
        daemon: DaemonId,
        key: KeyId,
    ) -> (DaemonRegistration, CancellationToken, Arc<HeldJobs>) {
        add_as(list, who(daemon, key))
    }

    fn add_as(
        list: &ConnectedDaemons,
        identity: DaemonIdentity,
    ) -> (DaemonRegistration, CancellationToken, Arc<HeldJobs>) {
        let (close, held_jobs) = (CancellationToken::new(), Arc::new(HeldJobs::default()));
        (list.add(identity, close.clone(), Arc::clone(&held_jobs)), close, held_jobs)
    }

    #[test]
    fn sessions_are_found_by_their_key_and_ended_ones_forgotten() {
        let connected = ConnectedDaemons::default();
        let (daemon, key) = (DaemonId::random(), KeyId::random());
        let one = add(&connected, daemon, key);
        let two = add(&connected, daemon, key);
        let three = add(&connected, DaemonId::random(), KeyId::PSK);
        assert_eq!((connected.daemons().len(), connected.keys().len()), (2, 2));
        drop(two.0);
        let of_key = connected.matching(|identity| identity.key == key);
        assert_eq!(of_key.len(), 1);
        of_key[0].0.cancel();
        assert!(one.1.is_cancelled() && !two.1.is_cancelled() && !three.1.is_cancelled());
        drop((one, three));
        assert!(connected.is_empty());
    }

    #[test]
    fn the_newest_connection_of_a_process_closes_the_older_one() {
        let (connected, daemon, session) =
            (ConnectedDaemons::default(), DaemonId::random(), Sha256Digest([7; 32]));
        let first = add(&connected, daemon, KeyId::PSK);
        let stranger = add(&connected, daemon, KeyId::PSK);
        connected.attach(&first.0, session, Timestamp::UNIX_EPOCH);
        connected.attach(&stranger.0, Sha256Digest([8; 32]), Timestamp::UNIX_EPOCH);
        assert!(!first.1.is_cancelled(), "another process of the same name is not a newer connection");
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
        let (connected, daemon) = (ConnectedDaemons::default(), DaemonId::random());
        let later = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(1);
        let (there, new) = (add(&connected, daemon, KeyId::PSK), add(&connected, daemon, KeyId::PSK));
        let official = add_as(
            &connected,
            DaemonIdentity { cannot_drain: true, since: later, ..who(daemon, KeyId::PSK) },
        );
        let other = add(&connected, DaemonId::random(), KeyId::PSK);
        connected.attach(&there.0, Sha256Digest([7; 32]), Timestamp::UNIX_EPOCH);
        connected.attach(&new.0, Sha256Digest([8; 32]), later);
        assert_eq!(connected.drain(daemon, "make room", Timestamp::UNIX_EPOCH), 2);
        assert!(!official.2.is_retired());
        let words = |held_jobs: &HeldJobs| {
            held_jobs.next_notifications(Timestamp::UNIX_EPOCH, std::time::Duration::MAX).0.len()
        };
        assert_eq!((words(&there.2), words(&new.2), words(&other.2)), (1, 0, 0));
        assert!(official.2.is_paused() && !there.2.is_paused() && !other.2.is_paused());
        let undrain = || connected.undrain(|freed| freed == daemon);
        assert_eq!((undrain(), undrain()), (1, 0));
        assert!(!official.2.is_paused());
    }

    #[test]
    fn a_drain_is_for_a_process_whose_age_shows_only_when_it_attaches() {
        let (connected, daemon) = (ConnectedDaemons::default(), DaemonId::random());
        let at = |second| Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_secs(second);
        let came_back = |session, since| {
            let line = add_as(&connected, DaemonIdentity { since: at(3), ..who(daemon, KeyId::PSK) });
            // Asked for at second two by a request that ends while this process is coming back.
            assert_eq!(connected.drain(daemon, "make room", at(2)), 0);
            connected.attach(&line.0, Sha256Digest([session; 32]), at(since));
            line.2.next_notifications(at(3), std::time::Duration::MAX).0.len()
        };
        assert_eq!((came_back(7, 1), came_back(8, 3)), (1, 0));
    }

    #[test]
    fn older_row_does_not_undo_a_newer_drain() {
        for drained in [true, false] {
            let (connected, daemon) = (ConnectedDaemons::default(), DaemonId::random());
            let line = add_as(&connected, DaemonIdentity { cannot_drain: true, ..who(daemon, KeyId::PSK) });
            let before = line.2.pause_changes();
            // Here its row is read, which is about to change.
            if drained {
                connected.drain(daemon, "make room", Timestamp::UNIX_EPOCH);
            } else {
                connected.undrain(|_| true);
            }
            line.2.set_paused_unless_newer(!drained, before);
            assert_eq!(line.2.is_paused(), drained);
            line.2.set_paused_unless_newer(!drained, line.2.pause_changes());
            assert_ne!(line.2.is_paused(), drained, "nothing came in between");
        }
    }
}
