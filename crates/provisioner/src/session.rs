//! The daemon's line to the server: the connection of the moment, and calls that outlive it (wire-protocol 5.7).

use std::time::Duration;

use bytes::Bytes;
use coder_wire::daemon::{self, Client};
use coder_wire::drpc;
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd as pb;
use tokio::sync::watch;
use tokio::time::Instant;

const FIRST_RETRY: Duration = Duration::from_millis(40);
const LAST_RETRY: Duration = Duration::from_secs(5);
const GROWTH: f64 = 1.618;

/// One attempt of a call that is made until it succeeds; a server that hangs for so long may have forgotten it.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// One attempt of a file transfer (wire-protocol 5.7).
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CallError {
    /// The server answered with an error; it would do so again.
    #[error("{0}")]
    Refused(String),
    /// The connection ended before the answer; a new one may do better.
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("no answer in time")]
    Timeout,
    #[error("no connection to the server for {0:?}")]
    Disconnected(Duration),
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

impl CallError {
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self, CallError::Lost(_))
    }
}

/// How long a call is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// In all, while there is a connection.
    pub(crate) connected: Option<Duration>,
    /// In one go, while there is none.
    pub(crate) disconnected: Option<Duration>,
}

impl Patience {
    /// Until somebody gives up from outside.
    pub(crate) const ENDLESS: Self = Self { connected: None, disconnected: None };
}

/// Delays that grow by the golden ratio, without jitter, as the reference has them.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    last: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, last: Duration) -> Self {
        Self { next: first, first, last }
    }

    pub(crate) fn next(&mut self) -> Duration {
        let now = self.next;
        self.next = now.mul_f64(GROWTH).min(self.last);
        now
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }
}

/// A handle on whatever connection there is; clones share it.
#[derive(Clone)]
pub(crate) struct Link {
    current: watch::Receiver<Option<Client>>,
}

impl Link {
    pub(crate) fn new(current: watch::Receiver<Option<Client>>) -> Self {
        Self { current }
    }

    /// Waits for a connection; `None` when the daemon has stopped connecting for good.
    pub(crate) async fn client(&self) -> Option<Client> {
        let mut current = self.current.clone();
        let client = current.wait_for(Option::is_some).await.ok()?;
        client.clone()
    }

    /// Makes a call, again on the next connection when one is lost under it.
    async fn call<T, Attempt>(
        &self,
        patience: Patience,
        make: impl Fn(Client) -> Attempt,
    ) -> Result<T, CallError>
    where
        Attempt: Future<Output = Result<T, daemon::Error>>,
    {
        let mut backoff = Backoff::new(FIRST_RETRY, LAST_RETRY);
        let mut left = patience.connected;
        loop {
            let client = match patience.disconnected {
                None => self.client().await,
                Some(limit) => tokio::time::timeout(limit, self.client())
                    .await
                    .map_err(|_| CallError::Disconnected(limit))?,
            };
            let client =
                client.ok_or_else(|| CallError::Refused("there is no way back to the server".to_owned()))?;
            let started_at = Instant::now();
            let result = match left {
                None => make(client).await.map_err(CallError::from),
                Some(left) => match tokio::time::timeout(left, make(client)).await {
                    Ok(result) => result.map_err(CallError::from),
                    Err(_) => Err(CallError::Timeout),
                },
            };
            match result {
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, "a call is made again");
                    self.pause(backoff.next()).await;
                }
                result => return result,
            }
            // Time without a connection does not count here; it has its own limit.
            if let Some(left) = &mut left {
                *left = left.saturating_sub(started_at.elapsed());
                if left.is_zero() {
                    return Err(CallError::Timeout);
                }
            }
        }
    }

    /// Waits, but not longer than until the next connection.
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

    pub(crate) async fn update_job(
        &self,
        patience: Patience,
        request: &pb::UpdateJobRequest,
    ) -> Result<pb::UpdateJobResponse, CallError> {
        self.call(patience, |client| async move { client.update_job(request).await }).await
    }

    pub(crate) async fn commit_quota(
        &self,
        request: &pb::CommitQuotaRequest,
    ) -> Result<pb::CommitQuotaResponse, CallError> {
        self.call(Patience::ENDLESS, |client| {
            attempt(ATTEMPT_TIMEOUT, async move { client.commit_quota(request).await })
        })
        .await
    }

    pub(crate) async fn fail_job(&self, request: &pb::FailedJob) -> Result<(), CallError> {
        self.call(Patience::ENDLESS, |client| {
            attempt(ATTEMPT_TIMEOUT, async move { client.fail_job(request).await })
        })
        .await
    }

    pub(crate) async fn complete_job(&self, request: &pb::CompletedJob) -> Result<(), CallError> {
        self.call(Patience::ENDLESS, |client| {
            attempt(ATTEMPT_TIMEOUT, async move { client.complete_job(request).await })
        })
        .await
    }

    pub(crate) async fn upload_modules(&self, files: &Bytes) -> Result<(), CallError> {
        self.call(Patience::ENDLESS, |client| {
            let files = files.clone();
            let kind = DataUploadType::UploadTypeModuleFiles;
            attempt(TRANSFER_TIMEOUT, async move { client.upload_file(kind, files).await })
        })
        .await
    }

    pub(crate) async fn download_modules(&self, file_id: &str) -> Result<Bytes, CallError> {
        self.call(Patience::ENDLESS, |client| {
            let kind = DataUploadType::UploadTypeModuleFiles;
            attempt(TRANSFER_TIMEOUT, async move { client.download_file(file_id, kind).await })
        })
        .await
    }
}

/// One attempt of a call; one that hangs is made again.
async fn attempt<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, daemon::Error>>,
) -> Result<T, daemon::Error> {
    let timed_out = |_| Err(drpc::Error::Lost(std::io::ErrorKind::TimedOut.into()).into());
    tokio::time::timeout(limit, call).await.unwrap_or_else(timed_out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_limit() {
        let mut backoff = Backoff::new(Duration::from_millis(81), Duration::from_secs(10));
        let delays: Vec<u128> = (0..12).map(|_| backoff.next().as_millis()).collect();
        assert_eq!(delays[..4], [81, 131, 212, 343]);
        assert_eq!(delays[11], 10_000);
        backoff.reset();
        assert_eq!(backoff.next().as_millis(), 81);
    }
}
