//! The daemon's connection to the server, and calls that survive its loss (wire-protocol 5.7).

pub(crate) mod compatibility;
pub(crate) mod dialer;
pub(crate) mod error;
pub(crate) mod held_jobs;
pub(crate) mod notifications;
pub(crate) mod status_reports;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coder_domain::backoff::Backoff;
use coder_domain::protocol::ApiVersion;
use coder_wire::daemon::{self, Client};
use coder_wire::drpc;
use coder_wire::extension::messages::{LogsRequest, ProgramReport};
use coder_wire::extension::{self, Extension, Extensions, Journal};
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd as pb;
use coder_wire::mux;
use tokio::sync::watch;
use tokio::time::Instant;

use self::held_jobs::{HeldJobs, Hold};
use crate::job::salvage;
use crate::job::salvage::SalvagedState;

const MIN_RETRY_DELAY: Duration = Duration::from_millis(40);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// One attempt of a call that is retried until it succeeds; a server that takes longer may have lost it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// One attempt of a file transfer (wire-protocol 5.7).
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A job that waits longer for its token continues without one.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for handing over the state of a lost job.
const SALVAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The server answered with an error; a retry would get the same.
    #[error("{0}")]
    Refused(String),
    /// The connection ended before the answer; a retry may succeed.
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("no answer in time")]
    Timeout,
    #[error("no connection to the server for {0:?}")]
    Disconnected(Duration),
    /// The daemon has stopped connecting.
    #[error("the daemon has stopped connecting to the server")]
    Closed,
    /// The daemon no longer holds the job.
    #[error("the server has ended the job: {0}")]
    JobEnded(String),
}

impl From<daemon::Error> for CallError {
    fn from(error: daemon::Error) -> Self {
        match error {
            daemon::Error::Call(drpc::Error::Refused(status)) => CallError::Refused(status.text),
            error if error.is_retryable() => CallError::Lost(error.to_string()),
            error => CallError::Refused(error.to_string()),
        }
    }
}

impl From<drpc::Error> for CallError {
    fn from(error: drpc::Error) -> Self {
        Self::from(daemon::Error::from(error))
    }
}

impl CallError {
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, CallError::Lost(_))
    }
}

/// How long a call is retried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetryPolicy {
    /// Total time while connected.
    pub(crate) connected: Option<Duration>,
    /// Longest time without a connection; the server's grace period takes precedence.
    pub(crate) disconnected: Option<Duration>,
}

impl RetryPolicy {
    /// Until the caller gives up.
    pub(crate) const UNLIMITED: Self = Self { connected: None, disconnected: None };
}

/// One connection, and what was negotiated for it.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    extensions: extension::Client,
    granted: Extensions,
    protocol: ApiVersion,
    number: u64,
}

impl Connection {
    pub(crate) fn new(session: mux::Session, granted: Extensions, protocol: ApiVersion, number: u64) -> Self {
        let extensions = extension::Client::new(session.clone());
        Self { client: Client::new(session), extensions, granted, protocol, number }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Call only extensions that were granted.
    pub(crate) fn extensions(&self) -> &extension::Client {
        &self.extensions
    }

    pub(crate) fn granted(&self) -> Extensions {
        self.granted
    }

    /// The number of this connection in the process, from 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

/// A handle to the current connection; clones share it.
#[derive(Clone)]
pub(crate) struct ConnectionHandle {
    current: watch::Receiver<Option<Connection>>,
    held_jobs: Arc<HeldJobs>,
}

impl ConnectionHandle {
    pub(crate) fn new(current: watch::Receiver<Option<Connection>>, held_jobs: Arc<HeldJobs>) -> Self {
        Self { current, held_jobs }
    }

    pub(crate) fn held_jobs(&self) -> &Arc<HeldJobs> {
        &self.held_jobs
    }

    /// Waits for a connection; `None` when the daemon has stopped connecting.
    pub(crate) async fn connection(&self) -> Option<Connection> {
        let mut current = self.current.clone();
        let connection = current.wait_for(Option::is_some).await.ok()?;
        connection.clone()
    }

    /// Waits until the daemon has stopped connecting.
    pub(crate) async fn ended(&self) {
        let mut current = self.current.clone();
        while current.changed().await.is_ok() {}
    }

    /// Makes a call, and retries it on the next connection when one is lost.
    async fn call<T, Attempt>(
        &self,
        retry: RetryPolicy,
        make: impl Fn(Connection) -> Attempt,
    ) -> Result<T, CallError>
    where
        Attempt: Future<Output = Result<T, CallError>>,
    {
        let mut backoff = Backoff::new(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        let mut remaining = retry.connected;
        loop {
            let connection = match retry.disconnected {
                None => self.connection().await,
                Some(limit) => {
                    let limit = self.held_jobs.grace().unwrap_or(limit);
                    tokio::time::timeout(limit, self.connection())
                        .await
                        .map_err(|_| CallError::Disconnected(limit))?
                }
            };
            let connection = connection.ok_or(CallError::Closed)?;
            let started_at = Instant::now();
            let result = match remaining {
                None => make(connection).await,
                Some(remaining) => {
                    tokio::time::timeout(remaining, make(connection)).await.unwrap_or(Err(CallError::Timeout))
                }
            };
            match result {
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, "retrying a call");
                    self.pause(backoff.next_delay()).await;
                }
                result => return result,
            }
            // Time without a connection does not count here; it has its own limit.
            if let Some(remaining) = &mut remaining {
                *remaining = remaining.saturating_sub(started_at.elapsed());
                if remaining.is_zero() {
                    return Err(CallError::Timeout);
                }
            }
        }
    }

    /// Waits for `time`, or until the next connection.
    async fn pause(&self, time: Duration) {
        let mut current = self.current.clone();
        current.mark_unchanged();
        let changed = async {
            while current.changed().await.is_ok() {
                if current.borrow_and_update().is_some() {
                    return;
                }
            }
            std::future::pending().await
        };
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = changed => {}
        }
    }
}

/// The result of sending a batch of lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct LogReceipt {
    /// Number of the oldest lines that can leave the queue.
    pub(crate) lines: usize,
    pub(crate) canceled: bool,
    /// The job's log is full: further lines need not be sent.
    pub(crate) overflowed: bool,
}

/// The calls of one job; clones share it. They fail with [`CallError::JobEnded`] when the daemon no longer
/// holds the job.
#[derive(Clone)]
pub(crate) struct JobClient {
    link: ConnectionHandle,
    hold: Arc<Hold>,
}

impl JobClient {
    pub(crate) fn new(link: ConnectionHandle, hold: Arc<Hold>) -> Self {
        Self { link, hold }
    }

    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn job_id(&self) -> &str {
        &self.hold.job_id
    }

    async fn call<T, Attempt>(
        &self,
        retry: RetryPolicy,
        make: impl Fn(Connection) -> Attempt,
    ) -> Result<T, CallError>
    where
        Attempt: Future<Output = Result<T, CallError>>,
    {
        tokio::select! {
            biased;
            over = self.hold.wait_for_end() => Err(CallError::JobEnded(over.reason().to_owned())),
            result = self.link.call(retry, make) => result,
        }
    }

    /// Requests the job's token, so that a connection loss right after the acquire loses nothing.
    pub(crate) async fn request_token(&self) {
        let holding =
            self.call(RetryPolicy::UNLIMITED, |connection| async move { self.hold.token(&connection).await });
        // It is requested again when it is needed.
        match tokio::time::timeout(TOKEN_TIMEOUT, holding).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(job_id = %self.hold.job_id, %error, "the job has no token"),
            Err(_) => tracing::debug!(job_id = %self.hold.job_id, "the job has no token yet"),
        }
    }

    pub(crate) async fn update_job(
        &self,
        retry: RetryPolicy,
        request: &pb::UpdateJobRequest,
    ) -> Result<pb::UpdateJobResponse, CallError> {
        self.call(retry, |connection| async move { Ok(connection.client.update_job(request).await?) }).await
    }

    /// Sends the oldest queued lines, numbered if that was negotiated. Without lines this is a heartbeat.
    pub(crate) async fn deliver(
        &self,
        retry: RetryPolicy,
        lines: &[pb::Log],
    ) -> Result<LogReceipt, CallError> {
        self.call(retry, |connection| async move {
            if connection.granted.has(Extension::Logs)
                && !lines.is_empty()
                && let Some(token) = self.hold.token(&connection).await?
            {
                return self.deliver_numbered(&connection, token, lines).await;
            }
            let request = pb::UpdateJobRequest {
                job_id: self.hold.job_id.clone(),
                logs: lines.to_vec(),
                ..pb::UpdateJobRequest::default()
            };
            let answer = connection.client.update_job(&request).await?;
            self.hold.sequence(|sequence| sequence.drop_assigned(lines.len()));
            Ok(LogReceipt { lines: lines.len(), canceled: answer.canceled, overflowed: false })
        })
        .await
    }

    async fn deliver_numbered(
        &self,
        connection: &Connection,
        token: Bytes,
        lines: &[pb::Log],
    ) -> Result<LogReceipt, CallError> {
        // A new connection may have reported that some of them are stored already.
        let stored = self.hold.sequence(|sequence| sequence.take_stored());
        if stored > 0 {
            return Ok(LogReceipt { lines: stored.min(lines.len()), ..LogReceipt::default() });
        }
        let first_sequence = self.hold.sequence(|sequence| sequence.assign(lines.len()));
        let job_id = self.hold.job_id.clone();
        let request = LogsRequest { job_id, token, first_sequence, lines: lines.to_vec() };
        let answer = connection.extensions.logs(&request).await?;
        let lines = self.hold.sequence(|sequence| {
            if answer.next_sequence < first_sequence {
                // The server misses lines that it had acknowledged; numbering continues from its value.
                sequence.expect_next(answer.next_sequence.max(1));
            } else {
                sequence.acknowledge(answer.next_sequence);
            }
            sequence.take_stored()
        });
        Ok(LogReceipt { lines, canceled: answer.canceled, overflowed: answer.overflowed })
    }

    /// Sends a state that Terraform has written, on this connection only: a newer state replaces it. Returns
    /// false when the server does not accept states.
    pub(crate) async fn journal(&self, serial: u64, lineage: &str, state: &Bytes) -> Result<bool, CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| async move {
            if !connection.granted.has(Extension::Journal) {
                return Ok(false);
            }
            let Some(token) = self.hold.token(&connection).await? else { return Ok(false) };
            let journal = Journal {
                job_id: self.hold.job_id.clone(),
                token,
                serial,
                lineage: lineage.to_owned(),
                state: state.clone(),
            };
            attempt(ATTEMPT_TIMEOUT, async move { Ok(connection.extensions.journal(&journal).await?) })
                .await?;
            Ok(true)
        })
        .await
    }

    /// Reports which Terraform runs the job, with retries. Returns false when the server does not accept the
    /// report.
    pub(crate) async fn report_program(&self, product: &str, version: &str) -> Result<bool, CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| async move {
            if !connection.granted.has(Extension::Program) {
                return Ok(false);
            }
            let Some(token) = self.hold.token(&connection).await? else { return Ok(false) };
            let report = ProgramReport {
                job_id: self.hold.job_id.clone(),
                token,
                product: product.to_owned(),
                version: version.to_owned(),
            };
            attempt(ATTEMPT_TIMEOUT, async move { Ok(connection.extensions.report_program(&report).await?) })
                .await?;
            Ok(true)
        })
        .await
    }

    /// Hands over the state of a job that the server has dropped; only for a limited time, as the daemon may be
    /// shutting down.
    pub(crate) async fn salvage_all(&self, remaining: SalvagedState) {
        let _ =
            tokio::time::timeout(SALVAGE_TIMEOUT, salvage::salvage_all(&self.link, vec![remaining])).await;
    }

    pub(crate) async fn commit_quota(
        &self,
        request: &pb::CommitQuotaRequest,
    ) -> Result<pb::CommitQuotaResponse, CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| {
            attempt(ATTEMPT_TIMEOUT, async move { Ok(connection.client.commit_quota(request).await?) })
        })
        .await
    }

    pub(crate) async fn fail_job(&self, request: &pb::FailedJob) -> Result<(), CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| {
            attempt(ATTEMPT_TIMEOUT, async move { Ok(connection.client.fail_job(request).await?) })
        })
        .await
    }

    pub(crate) async fn complete_job(&self, request: &pb::CompletedJob) -> Result<(), CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| {
            attempt(ATTEMPT_TIMEOUT, async move {
                let request = compatibility::completed(request, connection.protocol);
                Ok(connection.client.complete_job(&request).await?)
            })
        })
        .await
    }

    pub(crate) async fn upload_modules(&self, files: &Bytes) -> Result<(), CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| {
            let files = files.clone();
            let kind = DataUploadType::UploadTypeModuleFiles;
            attempt(TRANSFER_TIMEOUT, async move { Ok(connection.client.upload_file(kind, files).await?) })
        })
        .await
    }

    pub(crate) async fn download_modules(&self, file_id: &str) -> Result<Bytes, CallError> {
        self.call(RetryPolicy::UNLIMITED, |connection| {
            let kind = DataUploadType::UploadTypeModuleFiles;
            attempt(
                TRANSFER_TIMEOUT,
                async move { Ok(connection.client.download_file(file_id, kind).await?) },
            )
        })
        .await
    }
}

/// One attempt of a call; a call that hangs is retried.
async fn attempt<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    let timed_out = |_| Err(CallError::Lost("no answer in time".to_owned()));
    tokio::time::timeout(limit, call).await.unwrap_or_else(timed_out)
}
