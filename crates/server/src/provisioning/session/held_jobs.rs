//! The jobs that one connection of a daemon holds, and the notifications that wait for the daemon.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId};
use coder_domain::key::Sha256Digest;
use coder_store::jobs::Holder;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How a connection holds a job.
#[derive(Clone, Default)]
struct Hold {
    /// The job's epoch when this connection got it; `None` for official daemons.
    epoch: Option<i64>,
    /// The token that this connection got.
    token: Option<Bytes>,
    /// Whether the token was never used. An older one stays valid until then.
    token_unused: bool,
    /// When the job was canceled.
    canceled_at: Option<Timestamp>,
    /// Whether the daemon was notified of the cancellation, and whether to force it.
    cancel_sent: Option<bool>,
}

#[derive(Default)]
struct State {
    session: Option<Sha256Digest>,
    jobs: HashMap<JobId, Hold>,
    revoked: Vec<(JobId, String)>,
    /// Whether notifications are being sent.
    is_sending: bool,
    drain: Option<String>,
    drain_sent: bool,
    /// The newest drain that did not seem to concern this process, with its time.
    skipped_drain: Option<(Timestamp, String)>,
    is_paused: bool,
    /// How often `is_paused` was set.
    pause_changes: u64,
    superseded: bool,
}

/// A notification for the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PendingNotification {
    /// Take no more jobs, and disconnect when the running ones have ended.
    Drain(String),
    /// Stop a job, by force or not.
    Cancel(JobId, bool),
    /// The server ended a job for this reason.
    Revoked(JobId, String),
}

/// The jobs of one connection. They are lost with the connection: the database decides.
#[derive(Default)]
pub struct HeldJobs {
    state: Mutex<State>,
    changed: Notify,
    sent: Notify,
    ended: Notify,
    retired: CancellationToken,
    pause_changed: Notify,
}

impl HeldJobs {
    /// The session of the daemon process, once it is attached.
    #[must_use]
    pub fn session(&self) -> Option<Sha256Digest> {
        self.state().session
    }

    /// The daemon process has attached.
    pub fn attach(&self, session: Sha256Digest) {
        self.state().session = Some(session);
    }

    /// A newer connection of the same process took over its jobs.
    pub fn supersede(&self) {
        self.state().superseded = true;
    }

    /// Whether a newer connection took over its jobs.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.state().superseded
    }

    /// A job was handed out over this connection, or resumed on it.
    pub fn hold(&self, job: JobId, epoch: Option<i64>, token: Option<Bytes>, canceled_at: Option<Timestamp>) {
        self.state().jobs.insert(job, Hold { epoch, token, canceled_at, ..Hold::default() });
        self.changed.notify_one();
    }

    /// An official daemon reported on this job after it reconnected.
    pub fn note_official(&self, job: JobId) {
        self.state().jobs.entry(job).or_default();
    }

    /// The newest token of a job.
    #[must_use]
    pub fn token(&self, job: JobId) -> Option<Bytes> {
        self.state().jobs.get(&job)?.token.clone()
    }

    /// The newest token of a held job, made when there is none. Repeated and concurrent Hold calls get the same one.
    pub fn token_or_insert_with(&self, job: JobId, fresh: impl FnOnce() -> Bytes) -> Option<Bytes> {
        self.state().jobs.get_mut(&job).map(|hold| hold.token.get_or_insert_with(fresh).clone())
    }

    /// The previous token of the job stays valid until this connection uses the newest.
    pub fn expect_token_use(&self, job: JobId) {
        if let Some(hold) = self.state().jobs.get_mut(&job) {
            hold.token_unused = true;
        }
    }

    /// The newest token was used. Returns whether it is the first use.
    pub fn note_token_use(&self, job: JobId) -> bool {
        self.state().jobs.get_mut(&job).is_some_and(|hold| std::mem::take(&mut hold.token_unused))
    }

    /// The holder of a job when `daemon` reports on it over this connection.
    #[must_use]
    pub fn holder(&self, daemon: DaemonId, job: JobId) -> Holder {
        let epoch = self.state().jobs.get(&job).and_then(|hold| hold.epoch);
        Holder { daemon, epoch }
    }

    /// Whether this connection holds the job.
    #[must_use]
    pub fn has(&self, job: JobId) -> bool {
        self.state().jobs.contains_key(&job)
    }

    /// The jobs, each with its epoch.
    #[must_use]
    pub fn jobs(&self) -> Vec<(JobId, Option<i64>)> {
        self.state().jobs.iter().map(|(job, hold)| (*job, hold.epoch)).collect()
    }

    /// Whether it holds no jobs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    /// The job has ended. With a reason the server ended it, and the daemon is notified.
    pub fn end(&self, job: JobId, reason: Option<&str>) {
        let mut state = self.state();
        if state.jobs.remove(&job).is_some()
            && let Some(reason) = reason
        {
            state.revoked.push((job, reason.to_owned()));
        }
        drop(state);
        self.ended.notify_waiters();
        self.changed.notify_one();
    }

    pub fn cancel(&self, job: JobId, at: Timestamp) {
        if let Some(hold) = self.state().jobs.get_mut(&job) {
            hold.canceled_at.get_or_insert(at);
        }
        self.changed.notify_one();
    }

    /// The daemon was drained.
    pub fn drain(&self, reason: &str) {
        self.state().drain.get_or_insert_with(|| reason.to_owned());
        self.changed.notify_one();
    }

    /// No more jobs are handed out over this connection, which ends when it holds none.
    pub fn retire(&self) {
        self.retired.cancel();
    }

    /// Whether no more jobs are handed out.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Waits until no more jobs are handed out.
    pub async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Remembers a drain of processes that started before `asked_at`. Attach tells whether this process is one.
    pub(crate) fn skip_drain(&self, reason: &str, asked_at: Timestamp) {
        let mut state = self.state();
        if state.skipped_drain.as_ref().is_none_or(|(newest, _)| *newest <= asked_at) {
            state.skipped_drain = Some((asked_at, reason.to_owned()));
        }
    }

    /// The process started at `since`. A remembered drain applies if it was requested later.
    pub(crate) fn set_started_at(&self, since: Timestamp) {
        let skipped_drain = self.state().skipped_drain.take();
        if let Some((_, reason)) = skipped_drain.filter(|(asked_at, _)| since <= *asked_at) {
            self.drain(&reason);
        }
    }

    /// Stops or restarts handing out jobs over this connection. Returns whether that changed.
    pub fn set_paused(&self, paused: bool) -> bool {
        let mut state = self.state();
        state.pause_changes += 1;
        let is_news = std::mem::replace(&mut state.is_paused, paused) != paused;
        drop(state);
        self.pause_changed.notify_waiters();
        is_news
    }

    /// How often [`Self::set_paused`] was called.
    #[must_use]
    pub fn pause_changes(&self) -> u64 {
        self.state().pause_changes
    }

    /// As [`Self::set_paused`], unless that was called since `pause_changes` was read.
    pub fn set_paused_unless_newer(&self, paused: bool, pause_changes: u64) {
        let mut state = self.state();
        if state.pause_changes == pause_changes {
            state.is_paused = paused;
            drop(state);
            self.pause_changed.notify_waiters();
        }
    }

    /// Whether no jobs are handed out.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.state().is_paused
    }

    /// Waits until [`Self::is_paused`] is `paused`.
    pub async fn until_paused(&self, paused: bool) {
        loop {
            let mut changed = std::pin::pin!(self.pause_changed.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.is_paused() == paused {
                return;
            }
            changed.await;
        }
    }

    /// Waits until it holds no jobs.
    pub async fn until_empty(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// The notifications to send now, and the time until the next one is due.
    pub fn next_notifications(
        &self,
        now: Timestamp,
        force_after: Duration,
    ) -> (Vec<PendingNotification>, Option<Duration>) {
        let mut state = self.state();
        let mut notifications: Vec<_> = std::mem::take(&mut state.revoked)
            .into_iter()
            .map(|(job, why)| PendingNotification::Revoked(job, why))
            .collect();
        state.is_sending = !notifications.is_empty();
        let mut next: Option<Duration> = None;
        for (job, hold) in &mut state.jobs {
            let Some(at) = hold.canceled_at else { continue };
            // When the clock went back, no time has passed.
            let elapsed = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            let left = force_after.saturating_sub(elapsed);
            if left.is_zero() && hold.cancel_sent != Some(true) {
                hold.cancel_sent = Some(true);
                notifications.push(PendingNotification::Cancel(*job, true));
            } else if hold.cancel_sent.is_none() {
                hold.cancel_sent = Some(false);
                notifications.push(PendingNotification::Cancel(*job, false));
            }
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        if let Some(reason) = state.drain.clone().filter(|_| !state.drain_sent) {
            state.drain_sent = true;
            notifications.push(PendingNotification::Drain(reason));
        }
        (notifications, next)
    }

    /// Waits until there may be notifications, or the jobs changed. Only one task may wait.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The last result of [`Self::next_notifications`] was sent.
    pub fn mark_sent(&self) {
        self.state().is_sending = false;
        self.sent.notify_waiters();
    }

    /// Waits until every revocation was sent.
    pub async fn until_sent(&self) {
        loop {
            let mut sent = std::pin::pin!(self.sent.notified());
            // From here on no wake-up is missed.
            sent.as_mut().enable();
            if self.is_all_sent() {
                return;
            }
            sent.await;
        }
    }

    fn is_all_sent(&self) -> bool {
        let state = self.state();
        state.revoked.is_empty() && !state.is_sending
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl std::fmt::Debug for HeldJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HeldJobs").field("jobs", &self.jobs()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::constant(1_780_000_000, 0);
    const MINUTE: Duration = Duration::from_secs(60);

    fn later(seconds: i64) -> Timestamp {
        START + jiff::SignedDuration::from_secs(seconds)
    }

    #[test]
    fn a_cancel_is_notified_once_and_forced_after_its_time() {
        let (held_jobs, job) = (HeldJobs::default(), JobId::random());
        held_jobs.hold(job, Some(1), None, None);
        assert_eq!(held_jobs.next_notifications(START, MINUTE), (vec![], None));
        held_jobs.cancel(job, START);
        assert_eq!(
            held_jobs.next_notifications(later(20), MINUTE),
            (vec![PendingNotification::Cancel(job, false)], Some(MINUTE * 2 / 3))
        );
        assert_eq!(held_jobs.next_notifications(later(59), MINUTE), (vec![], Some(Duration::from_secs(1))));
        assert_eq!(
            held_jobs.next_notifications(later(60), MINUTE),
            (vec![PendingNotification::Cancel(job, true)], None)
        );
        assert_eq!(held_jobs.next_notifications(later(61), MINUTE), (vec![], None));
        held_jobs.cancel(JobId::random(), START);
        assert_eq!(
            held_jobs.next_notifications(later(61), MINUTE),
            (vec![], None),
            "not a job of this connection"
        );
    }

    #[test]
    fn a_cancel_of_long_ago_is_forced_at_once_and_a_clock_that_went_back_waits() {
        let (held_jobs, old, odd) = (HeldJobs::default(), JobId::random(), JobId::random());
        held_jobs.hold(old, Some(2), None, Some(later(-120)));
        assert_eq!(held_jobs.next_notifications(START, MINUTE).0, [PendingNotification::Cancel(old, true)]);
        held_jobs.hold(odd, Some(1), None, Some(later(500)));
        assert_eq!(
            held_jobs.next_notifications(START, MINUTE),
            (vec![PendingNotification::Cancel(odd, false)], Some(MINUTE))
        );
    }

    #[tokio::test]
    async fn a_revocation_is_notified_once_and_removes_the_job() {
        let (held_jobs, job, other) = (HeldJobs::default(), JobId::random(), JobId::random());
        held_jobs.hold(job, Some(1), None, None);
        held_jobs.end(other, Some("not here"));
        held_jobs.end(job, Some("gone"));
        held_jobs.end(job, Some("again"));
        assert!(held_jobs.is_empty() && !held_jobs.has(job));
        assert_eq!(
            held_jobs.next_notifications(START, MINUTE).0,
            [PendingNotification::Revoked(job, "gone".to_owned())]
        );
        assert!(!held_jobs.is_all_sent(), "it is not on its way yet");
        held_jobs.mark_sent();
        held_jobs.drain("please");
        held_jobs.drain("again");
        assert_eq!(
            held_jobs.next_notifications(START, MINUTE).0,
            [PendingNotification::Drain("please".to_owned())]
        );
        assert_eq!(held_jobs.next_notifications(START, MINUTE).0, []);
        held_jobs.until_sent().await;
    }
}
