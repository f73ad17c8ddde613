//! The jobs that this daemon runs, and what proves that it holds them: the session, the job tokens, and the
//! sequence numbers of log lines (docs/extensions.md).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::drpc;
use coder_wire::extension::messages::{
    AttachRequest, AttachResponse, HeldJob, HoldRequest, JobVerdict, Verdict,
};
use coder_wire::extension::{Extension, MAX_TOKEN_SIZE, SESSION_SIZE};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;

use super::{CallError, Connection};
use crate::cancel::{Cancel, Urgency};
use crate::files::job_file::JobFile;
use crate::job::salvage::JobRecord;

/// Why the daemon no longer holds a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// The server has recorded the job's end.
    Ended(String),
    /// The server has failed the job, or given it to another daemon.
    Lost(String),
}

impl JobEnd {
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Ended(reason) | Self::Lost(reason) => reason,
        }
    }
}

/// How the current connection authorizes calls for a job.
#[derive(Clone, PartialEq, Eq)]
enum TokenState {
    /// Not requested yet.
    Unknown,
    /// The server grants no token; the rule of the official protocol applies.
    Official,
    Token(Bytes),
}

/// Sequence numbers of a job's log lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogSequence {
    /// The number of the oldest queued line.
    front: u64,
    /// How many of the oldest queued lines were sent with a number.
    assigned: usize,
    /// How many of the oldest queued lines the server has stored, although they are still queued.
    stored: usize,
}

impl Default for LogSequence {
    fn default() -> Self {
        Self { front: 1, assigned: 0, stored: 0 }
    }
}

impl LogSequence {
    /// The server has stored all lines below `next`.
    pub(crate) fn acknowledge(&mut self, next: u64) {
        let lines = usize::try_from(next.saturating_sub(self.front)).unwrap_or(usize::MAX).min(self.assigned);
        self.front += lines as u64;
        self.assigned -= lines;
        self.stored += lines;
    }

    /// The server expects `next`. Lines that were sent by the official call have no number, so it may be any.
    pub(crate) fn expect_next(&mut self, next: u64) {
        self.acknowledge(next);
        self.front = next;
    }

    /// Takes the number of lines that can leave the queue.
    pub(crate) fn take_stored(&mut self) -> usize {
        std::mem::take(&mut self.stored)
    }

    /// Assigns numbers to the oldest `count` lines before they are sent, and returns the first one.
    pub(crate) fn assign(&mut self, count: usize) -> u64 {
        self.assigned = self.assigned.max(count);
        self.front
    }

    /// Queued lines were sent without numbers.
    pub(crate) fn drop_assigned(&mut self, count: usize) {
        self.assigned = self.assigned.saturating_sub(count);
    }
}

struct HoldState {
    /// The connection that `token` belongs to.
    connection: u64,
    token: TokenState,
    sequence: LogSequence,
    /// The file that stores the token for a later process.
    record: Option<JobFile>,
}

/// One held job.
pub(crate) struct Hold {
    pub(crate) job_id: String,
    cancel: Cancel,
    state: Mutex<HoldState>,
    end: watch::Sender<Option<JobEnd>>,
}

impl Hold {
    fn new(job_id: String, cancel: Cancel) -> Arc<Self> {
        let state = HoldState {
            connection: 0,
            token: TokenState::Unknown,
            sequence: LogSequence::default(),
            record: None,
        };
        Arc::new(Self { job_id, cancel, state: Mutex::new(state), end: watch::Sender::new(None) })
    }

    fn state(&self) -> MutexGuard<'_, HoldState> {
        self.state.lock()
    }

    pub(crate) fn sequence<T>(&self, change: impl FnOnce(&mut LogSequence) -> T) -> T {
        change(&mut self.state().sequence)
    }

    /// The token on this connection; `None` when the rule of the official protocol applies.
    pub(crate) async fn token(&self, connection: &Connection) -> Result<Option<Bytes>, CallError> {
        let wanted = [Extension::Resume, Extension::Logs, Extension::Journal, Extension::Program];
        if !wanted.iter().any(|extension| connection.granted().has(*extension)) {
            return Ok(None);
        }
        {
            let state = self.state();
            match &state.token {
                TokenState::Token(token) if state.connection == connection.number() => {
                    return Ok(Some(token.clone()));
                }
                TokenState::Official if state.connection == connection.number() => return Ok(None),
                _ => {}
            }
        }
        match connection.extensions().hold(&HoldRequest { job_id: self.job_id.clone() }).await {
            Ok(hold) if hold.token.len() <= MAX_TOKEN_SIZE => {
                self.grant(connection.number(), hold.token.clone(), hold.next_sequence);
                Ok(Some(hold.token))
            }
            Ok(_) => Err(CallError::Refused("the server's token for the job is too long".to_owned())),
            Err(drpc::Error::Refused(status)) => {
                tracing::debug!(job_id = %self.job_id, error = %status, "the server has no token for the job; using the official protocol");
                let mut state = self.state();
                (state.connection, state.token) = (connection.number(), TokenState::Official);
                Ok(None)
            }
            Err(error) => Err(CallError::from(error)),
        }
    }

    fn grant(&self, connection: u64, token: Bytes, next_sequence: u64) {
        let mut state = self.state();
        state.sequence.expect_next(next_sequence.max(1));
        (state.connection, state.token) = (connection, TokenState::Token(token));
        write_record(&self.job_id, &state);
    }

    /// Stores job id and token in a file, now and whenever the token changes, for a later process.
    pub(crate) fn set_record_file(&self, file: JobFile) {
        let mut state = self.state();
        state.record = Some(file);
        write_record(&self.job_id, &state);
    }

    fn apply_verdict(&self, connection: u64, verdict: &JobVerdict) {
        match verdict.verdict() {
            Verdict::GoOn => {
                self.grant(connection, verdict.token.clone(), verdict.next_sequence);
                if verdict.canceled {
                    self.cancel.request(Urgency::Graceful);
                }
            }
            Verdict::Ended => self.end(JobEnd::Ended(verdict.reason.clone())),
            Verdict::Lost | Verdict::Unspecified => self.end(JobEnd::Lost(verdict.reason.clone())),
        }
    }

    /// The daemon no longer holds the job; its programs are interrupted.
    pub(crate) fn end(&self, end: JobEnd) {
        self.end.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                tracing::warn!(target: "provisioner", job_id = %self.job_id, reason = end.reason(), "the server has ended the job");
                *current = Some(end);
            }
            first
        });
        self.cancel.request(Urgency::Graceful);
    }

    pub(crate) fn cancel(&self, urgency: Urgency) {
        self.cancel.request(urgency);
    }

    pub(crate) fn end_reason(&self) -> Option<JobEnd> {
        self.end.borrow().clone()
    }

    /// Waits until the daemon no longer holds the job.
    pub(crate) async fn wait_for_end(&self) -> JobEnd {
        let mut receiver = self.end.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|end| end.clone()) {
            Ok(Some(end)) => end,
            // The sender lives as long as `self`.
            _ => std::future::pending().await,
        }
    }
}

/// Writes what a later process needs to salvage the state.
fn write_record(job_id: &str, state: &HoldState) {
    if let (Some(file), TokenState::Token(token)) = (&state.record, &state.token)
        && let Err(error) = JobRecord::new(job_id, token).write(file)
    {
        tracing::warn!(job_id, %error, "the job's record cannot be written; if this process is killed, the job's state stays on this machine");
    }
}

#[derive(Default)]
struct Inner {
    session: Bytes,
    jobs: Vec<Arc<Hold>>,
    grace: Option<Duration>,
}

/// All jobs that this daemon holds.
#[derive(Default)]
pub(crate) struct HeldJobs(Mutex<Inner>);

impl HeldJobs {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    /// Adds a job until the returned guard is dropped.
    pub(crate) fn take(self: &Arc<Self>, job_id: &str, cancel: Cancel) -> RunningJob {
        let hold = Hold::new(job_id.to_owned(), cancel);
        self.inner().jobs.push(Arc::clone(&hold));
        RunningJob { held_jobs: Arc::clone(self), hold }
    }

    pub(crate) fn find(&self, job_id: &str) -> Option<Arc<Hold>> {
        self.inner().jobs.iter().find(|hold| hold.job_id == job_id).cloned()
    }

    /// How long the server waits for this daemon to reconnect.
    pub(crate) fn grace(&self) -> Option<Duration> {
        self.inner().grace
    }

    pub(crate) fn attach_request(&self, resumes: bool) -> AttachRequest {
        let inner = self.inner();
        let job = |hold: &Arc<Hold>| {
            let state = hold.state();
            let token = match &state.token {
                TokenState::Token(token) => token.clone(),
                TokenState::Unknown | TokenState::Official => Bytes::new(),
            };
            HeldJob { job_id: hold.job_id.clone(), token, next_sequence: state.sequence.front }
        };
        // Jobs that have ended are not attached again.
        let jobs = inner.jobs.iter().filter(|hold| resumes && hold.end_reason().is_none());
        AttachRequest { session: inner.session.clone(), jobs: jobs.map(job).collect() }
    }

    /// Applies the server's answer. A job that the answer omits is lost.
    pub(crate) fn apply_attach_response(
        &self,
        request: &AttachRequest,
        response: AttachResponse,
        connection: &Connection,
    ) {
        let asked: Vec<Arc<Hold>> = request.jobs.iter().filter_map(|job| self.find(&job.job_id)).collect();
        {
            let mut inner = self.inner();
            if response.session.len() == SESSION_SIZE {
                inner.session = response.session;
            }
            let grace = u64::try_from(response.grace_ms).ok().filter(|grace| *grace > 0);
            inner.grace =
                grace.map(Duration::from_millis).filter(|_| connection.granted().has(Extension::Resume));
        }
        for hold in asked {
            let verdict = response.jobs.iter().find(|verdict| verdict.job_id == hold.job_id);
            let lost =
                JobVerdict { reason: "the server does not know the job".to_owned(), ..Default::default() };
            hold.apply_verdict(connection.number(), verdict.unwrap_or(&lost));
        }
    }

    /// A server without extensions grants no grace period.
    pub(crate) fn clear_grace(&self) {
        self.inner().grace = None;
    }
}

/// A held job; dropping it releases the job.
pub(crate) struct RunningJob {
    held_jobs: Arc<HeldJobs>,
    pub(crate) hold: Arc<Hold>,
}

impl Drop for RunningJob {
    fn drop(&mut self) {
        self.held_jobs.inner().jobs.retain(|hold| !Arc::ptr_eq(hold, &self.hold));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_lost_answers() {
        let mut sequence = LogSequence::default();
        assert_eq!(sequence.assign(10), 1);
        // The answer was lost; the next connection reports that all ten lines are stored.
        sequence.expect_next(11);
        assert_eq!(sequence.take_stored(), 10);
        assert_eq!(sequence.assign(5), 11);
        sequence.acknowledge(14);
        assert_eq!((sequence.take_stored(), sequence.assign(2)), (3, 14));
        // A late answer changes nothing.
        sequence.acknowledge(12);
        assert_eq!((sequence.take_stored(), sequence.assign(2)), (0, 14));
    }

    #[test]
    fn lines_without_numbers_do_not_count() {
        let mut sequence = LogSequence::default();
        sequence.assign(4);
        // The four lines were sent again without numbers, and three others never had one.
        sequence.drop_assigned(7);
        sequence.expect_next(5);
        assert_eq!((sequence.take_stored(), sequence.assign(1)), (0, 5));
        // A server that knows no line starts again at 1.
        sequence.expect_next(1);
        assert_eq!((sequence.take_stored(), sequence.assign(1)), (0, 1));
    }

    #[test]
    fn only_the_first_end_counts() {
        let cancel = Cancel::new();
        let held_jobs = Arc::new(HeldJobs::default());
        let job = held_jobs.take("j", cancel.clone());
        job.hold.end(JobEnd::Lost("first".to_owned()));
        job.hold.end(JobEnd::Ended("second".to_owned()));
        assert_eq!(job.hold.end_reason(), Some(JobEnd::Lost("first".to_owned())));
        assert!(cancel.is_requested());
        assert!(held_jobs.attach_request(true).jobs.is_empty(), "it is not asked for again");
        assert!(held_jobs.find("j").is_some());
        drop(job);
        assert!(held_jobs.find("j").is_none());
    }
}
