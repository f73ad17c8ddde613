//! The jobs that one connection of a daemon holds, by which right, and what its daemon is still to be told.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId};
use coder_domain::key::Sha256Digest;
use coder_store::jobs::Holder;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How a connection holds a job.
#[derive(Clone, Default)]
struct Grip {
    /// The job's epoch under which this connection got it; none by the official rule.
    epoch: Option<i64>,
    /// The token that was given out on this connection.
    token: Option<Bytes>,
    /// Whether the use of the token is news: an older one is kept until then.
    unproven: bool,
    /// When a cancel was asked for, as far as this connection knows.
    canceled_at: Option<Timestamp>,
    /// Whether the daemon was told of the cancel, and whether by force.
    told: Option<bool>,
}

#[derive(Default)]
struct State {
    session: Option<Sha256Digest>,
    jobs: HashMap<JobId, Grip>,
    revoked: Vec<(JobId, String)>,
    /// Given out by `words`, but not yet on its way.
    unsent: bool,
    drain: Option<String>,
    drain_told: bool,
    /// The newest drain that was not for this process as far as was known then, and when it was asked for.
    passed_over: Option<(Timestamp, String)>,
    parked: bool,
    /// How often somebody said whether it is parked.
    parkings: u64,
    superseded: bool,
}

/// Something that the daemon should hear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Take no more jobs and leave.
    Drain(String),
    /// End a job; by force or not.
    Cancel(JobId, bool),
    /// The server has ended a job, for this reason.
    Revoked(JobId, String),
}

/// What one connection holds. Nothing in it outlives the connection: what counts is in the database.
#[derive(Default)]
pub struct Hand {
    state: Mutex<State>,
    changed: Notify,
    told: Notify,
    ended: Notify,
    retired: CancellationToken,
    parking: Notify,
}

impl Hand {
    /// The session of the daemon process, once it is attached.
    #[must_use]
    pub fn session(&self) -> Option<Sha256Digest> {
        self.state().session
    }

    /// The daemon process has attached.
    pub fn attach(&self, session: Sha256Digest) {
        self.state().session = Some(session);
    }

    /// A newer connection of the same process has taken everything over.
    pub fn supersede(&self) {
        self.state().superseded = true;
    }

    /// Whether a newer connection has taken everything over.
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.state().superseded
    }

    /// A job arrived over this connection, or came back to it.
    pub fn hold(&self, job: JobId, epoch: Option<i64>, token: Option<Bytes>, canceled_at: Option<Timestamp>) {
        self.state().jobs.insert(job, Grip { epoch, token, canceled_at, ..Grip::default() });
        self.changed.notify_one();
    }

    /// A job of an official daemon that came back and showed it by a message.
    pub fn notice_official(&self, job: JobId) {
        self.state().jobs.entry(job).or_default();
    }

    /// The newest token of a job.
    #[must_use]
    pub fn token(&self, job: JobId) -> Option<Bytes> {
        self.state().jobs.get(&job)?.token.clone()
    }

    /// The newest token of a job in hand, made now when there is none, so that a repeated Hold, or two at once, get the
    /// same one.
    pub fn token_or(&self, job: JobId, fresh: impl FnOnce() -> Bytes) -> Option<Bytes> {
        self.state().jobs.get_mut(&job).map(|grip| grip.token.get_or_insert_with(fresh).clone())
    }

    /// An older token of the job is still good for something, until this connection uses the newest.
    pub fn expect_proof(&self, job: JobId) {
        if let Some(grip) = self.state().jobs.get_mut(&job) {
            grip.unproven = true;
        }
    }

    /// The newest token was used; says whether that is news.
    pub fn prove(&self, job: JobId) -> bool {
        self.state().jobs.get_mut(&job).is_some_and(|grip| std::mem::take(&mut grip.unproven))
    }

    /// Who `daemon` is to the database when it speaks of this job over this connection.
    #[must_use]
    pub fn holder(&self, daemon: DaemonId, job: JobId) -> Holder {
        let epoch = self.state().jobs.get(&job).and_then(|grip| grip.epoch);
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
        self.state().jobs.iter().map(|(job, grip)| (*job, grip.epoch)).collect()
    }

    /// Whether it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.state().jobs.is_empty()
    }

    /// The job has ended. With a reason the server ended it, and the daemon is told.
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

    /// Somebody asked to stop the job.
    pub fn cancel(&self, job: JobId, at: Timestamp) {
        if let Some(grip) = self.state().jobs.get_mut(&job) {
            grip.canceled_at.get_or_insert(at);
        }
        self.changed.notify_one();
    }

    /// The daemon shall take no more jobs and leave.
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

    /// A drain that is for processes which came before `asked_at`; which this one is may turn out otherwise when it
    /// attaches.
    pub(crate) fn pass_over(&self, reason: &str, asked_at: Timestamp) {
        let mut state = self.state();
        if state.passed_over.as_ref().is_none_or(|(newest, _)| *newest <= asked_at) {
            state.passed_over = Some((asked_at, reason.to_owned()));
        }
    }

    /// The process came at `since`: a drain that was passed over is for it after all if it was asked for later.
    pub(crate) fn came(&self, since: Timestamp) {
        let passed_over = self.state().passed_over.take();
        if let Some((_, reason)) = passed_over.filter(|(asked_at, _)| since <= *asked_at) {
            self.drain(&reason);
        }
    }

    /// No jobs are handed out over this connection, or they are again; says whether that is news.
    pub fn park(&self, parked: bool) -> bool {
        let mut state = self.state();
        state.parkings += 1;
        let is_news = std::mem::replace(&mut state.parked, parked) != parked;
        drop(state);
        self.parking.notify_waiters();
        is_news
    }

    /// How often [`Self::park`] was called.
    #[must_use]
    pub fn parkings(&self) -> u64 {
        self.state().parkings
    }

    /// As [`Self::park`] with something that was read after `parkings` was: whoever parked it since knows better.
    pub fn park_unless_newer(&self, parked: bool, parkings: u64) {
        let mut state = self.state();
        if state.parkings == parkings {
            state.parked = parked;
            drop(state);
            self.parking.notify_waiters();
        }
    }

    /// Whether no jobs are handed out for now.
    #[must_use]
    pub fn is_parked(&self) -> bool {
        self.state().parked
    }

    /// Waits until no jobs are handed out, or they are again.
    pub async fn until_parked(&self, parked: bool) {
        loop {
            let mut changed = std::pin::pin!(self.parking.notified());
            // From here on no change is missed.
            changed.as_mut().enable();
            if self.is_parked() == parked {
                return;
            }
            changed.await;
        }
    }

    /// Waits until it holds nothing, looking when a job ends.
    pub async fn emptied(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            ended.as_mut().enable();
            if self.is_empty() {
                return;
            }
            ended.await;
        }
    }

    /// What is to be said now, and in how much time there will be something else if nothing changes.
    pub fn words(&self, now: Timestamp, force_after: Duration) -> (Vec<Word>, Option<Duration>) {
        let mut state = self.state();
        let mut words: Vec<_> = std::mem::take(&mut state.revoked)
            .into_iter()
            .map(|(job, why)| Word::Revoked(job, why))
            .collect();
        state.unsent = !words.is_empty();
        let mut next: Option<Duration> = None;
        for (job, grip) in &mut state.jobs {
            let Some(at) = grip.canceled_at else { continue };
            // A clock that went back counts as no time.
            let elapsed = Duration::try_from(now.duration_since(at)).unwrap_or_default();
            let left = force_after.saturating_sub(elapsed);
            if left.is_zero() && grip.told != Some(true) {
                grip.told = Some(true);
                words.push(Word::Cancel(*job, true));
            } else if grip.told.is_none() {
                grip.told = Some(false);
                words.push(Word::Cancel(*job, false));
            }
            if !left.is_zero() {
                next = Some(next.map_or(left, |next| next.min(left)));
            }
        }
        if let Some(reason) = state.drain.clone().filter(|_| !state.drain_told) {
            state.drain_told = true;
            words.push(Word::Drain(reason));
        }
        (words, next)
    }

    /// Waits until there may be something to say, or the jobs are others. One task waits.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What [`Self::words`] gave out last is on its way.
    pub fn told(&self) {
        self.state().unsent = false;
        self.told.notify_waiters();
    }

    /// Waits until every revocation is on its way, if anybody listens.
    pub async fn all_told(&self) {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            // From here on no call is missed.
            told.as_mut().enable();
            if self.is_all_told() {
                return;
            }
            told.await;
        }
    }

    fn is_all_told(&self) -> bool {
        let state = self.state();
        state.revoked.is_empty() && !state.unsent
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Hand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hand").field("jobs", &self.jobs()).finish_non_exhaustive()
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
    fn a_cancel_is_said_once_and_by_force_when_its_time_is_over() {
        let (hand, job) = (Hand::default(), JobId::random());
        hand.hold(job, Some(1), None, None);
        assert_eq!(hand.words(START, MINUTE), (vec![], None));
        hand.cancel(job, START);
        assert_eq!(hand.words(later(20), MINUTE), (vec![Word::Cancel(job, false)], Some(MINUTE * 2 / 3)));
        assert_eq!(hand.words(later(59), MINUTE), (vec![], Some(Duration::from_secs(1))));
        assert_eq!(hand.words(later(60), MINUTE), (vec![Word::Cancel(job, true)], None));
        assert_eq!(hand.words(later(61), MINUTE), (vec![], None));
        hand.cancel(JobId::random(), START);
        assert_eq!(hand.words(later(61), MINUTE), (vec![], None), "not a job of this connection");
    }

    #[test]
    fn a_cancel_of_long_ago_is_forced_at_once_and_a_clock_that_went_back_waits() {
        let (hand, old, odd) = (Hand::default(), JobId::random(), JobId::random());
        hand.hold(old, Some(2), None, Some(later(-120)));
        assert_eq!(hand.words(START, MINUTE).0, [Word::Cancel(old, true)]);
        hand.hold(odd, Some(1), None, Some(later(500)));
        assert_eq!(hand.words(START, MINUTE), (vec![Word::Cancel(odd, false)], Some(MINUTE)));
    }

    #[tokio::test]
    async fn a_revocation_is_said_once_and_takes_the_job_away() {
        let (hand, job, other) = (Hand::default(), JobId::random(), JobId::random());
        hand.hold(job, Some(1), None, None);
        hand.end(other, Some("not here"));
        hand.end(job, Some("gone"));
        hand.end(job, Some("again"));
        assert!(hand.is_empty() && !hand.has(job));
        assert_eq!(hand.words(START, MINUTE).0, [Word::Revoked(job, "gone".to_owned())]);
        assert!(!hand.is_all_told(), "it is not on its way yet");
        hand.told();
        hand.drain("please");
        hand.drain("again");
        assert_eq!(hand.words(START, MINUTE).0, [Word::Drain("please".to_owned())]);
        assert_eq!(hand.words(START, MINUTE).0, []);
        hand.all_told().await;
    }
}
