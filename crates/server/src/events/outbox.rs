//! Hints that wait to be sent to the other servers of the deployment, and the list of those servers. Without other servers
//! nothing is stored.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use coder_domain::ids::JobId;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use super::hint::Hint;

/// A server without a heartbeat for so long has stopped: three heartbeats were missed.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(65);
/// Most hints that wait. Above it they are replaced by [`Hint::Everything`].
const MAX_WAITING_HINTS: usize = 10_000;
/// Most jobs with followers on other servers.
const MAX_FOLLOWED_JOBS: usize = 10_000;
/// Most other servers that are listed.
const MAX_PEERS: usize = 1000;

#[derive(Debug)]
struct State {
    own: Uuid,
    waiting: BTreeSet<Hint>,
    peers: HashMap<Uuid, Instant>,
    followed: HashMap<JobId, Instant>,
}

impl Default for State {
    fn default() -> Self {
        let (waiting, peers, followed) = Default::default();
        Self { own: Uuid::new_v4(), waiting, peers, followed }
    }
}

/// A clone is the same outbox.
#[derive(Clone, Debug, Default)]
pub struct Outbox(Arc<(Mutex<State>, Notify)>);

impl Outbox {
    /// Queues a hint, if there are other servers.
    pub fn notify(&self, hint: Hint) {
        let mut state = self.state();
        if state.peers.is_empty() {
            return;
        }
        if state.waiting.len() >= MAX_WAITING_HINTS {
            state.waiting = BTreeSet::from([Hint::Everything]);
        } else {
            state.waiting.insert(hint);
        }
        self.0.1.notify_one();
    }

    /// Queues a hint about a job, if another server has followers of it.
    pub fn changed(&self, job: JobId) {
        if self.state().followed.contains_key(&job) {
            self.notify(Hint::Changed(job));
        }
    }

    /// Waits until a hint is queued.
    pub async fn until_filled(&self) {
        self.0.1.notified().await;
    }

    /// Takes the queued hints.
    #[must_use]
    pub fn take(&self) -> Vec<Hint> {
        std::mem::take(&mut self.state().waiting).into_iter().collect()
    }

    /// Hints could not be sent.
    pub fn failed(&self) {
        self.state().waiting.insert(Hint::Everything);
    }

    /// Another server sent a message. Returns whether it is a new server.
    pub fn peer_seen(&self, peer: Uuid) -> bool {
        let mut state = self.state();
        state.peers.len() < MAX_PEERS && state.peers.insert(peer, Instant::now()).is_none()
    }

    /// Another server has a follower of this job.
    pub fn follow(&self, job: JobId) {
        let mut state = self.state();
        if state.followed.len() < MAX_FOLLOWED_JOBS {
            state.followed.insert(job, Instant::now());
        }
    }

    /// Removes servers and followers without a recent heartbeat.
    pub fn forget_silent(&self) {
        let mut state = self.state();
        state.peers.retain(|_, heard_at| heard_at.elapsed() < SILENCE_TIMEOUT);
        state.followed.retain(|_, heard_at| heard_at.elapsed() < SILENCE_TIMEOUT);
        if state.peers.is_empty() {
            state.waiting.clear();
        }
    }

    /// The id of this server process.
    #[must_use]
    pub fn own(&self) -> Uuid {
        self.state().own
    }

    /// The other servers with a recent heartbeat.
    #[must_use]
    pub fn running(&self) -> Vec<Uuid> {
        let state = self.state();
        let heard = state.peers.iter().filter(|(_, heard_at)| heard_at.elapsed() < SILENCE_TIMEOUT);
        heard.map(|(peer, _)| *peer).collect()
    }

    /// How many other servers there are.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.state().peers.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_kept_for_nobody_and_not_without_end_for_somebody() {
        let (outbox, peer) = (Outbox::default(), Uuid::new_v4());
        outbox.notify(Hint::Everything);
        assert_eq!(outbox.take(), []);
        assert!(outbox.peer_seen(peer) && !outbox.peer_seen(peer));
        let job = JobId::random();
        outbox.changed(job);
        assert_eq!(outbox.take(), [], "nobody follows it");
        outbox.follow(job);
        outbox.changed(job);
        outbox.changed(job);
        outbox.until_filled().await;
        assert_eq!(outbox.take(), [Hint::Changed(job)]);
        for _ in 0..=MAX_WAITING_HINTS {
            outbox.notify(Hint::Posted(JobId::random()));
        }
        assert_eq!(outbox.take(), [Hint::Everything]);
        tokio::time::advance(SILENCE_TIMEOUT).await;
        outbox.forget_silent();
        assert_eq!(outbox.peers(), 0);
        outbox.changed(job);
        assert_eq!(outbox.take(), []);
    }
}
