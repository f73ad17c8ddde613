//! The daemon's side: one stream per call, as the official daemon does it.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::rpc;
use crate::drpc::{self, client::Call};
use crate::file;
use crate::messages::provisioner::{DataUploadType, FileUpload};
use crate::messages::provisionerd::{
    AcquiredJob, CancelAcquire, CommitQuotaRequest, CommitQuotaResponse, CompletedJob, Empty, FailedJob,
    FileRequest, UpdateJobRequest, UpdateJobResponse,
};
use crate::mux::{Session, Stream};

/// Longest wait for the end of an acquire after its answer. The answer is valid without it.
const ACQUIRE_END: Duration = Duration::from_secs(1);

/// A call that did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The call itself failed.
    #[error(transparent)]
    Call(#[from] drpc::Error),
    /// The messages are not a transfer of a file.
    #[error(transparent)]
    File(#[from] file::Error),
}

impl Error {
    /// Whether calling again can help, perhaps on a new connection (wire-protocol 5.7).
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Call(error) => error.is_retryable(),
            Self::File(error) => matches!(error, file::Error::Ended),
        }
    }
}

/// Makes calls to the server over a session. Clones share it.
///
/// Dropping the future of a call cancels the call: its stream ends, the session continues. The caller sets time limits.
#[derive(Debug, Clone)]
pub struct Client {
    session: Session,
}

impl Client {
    /// Calls over `session`.
    #[must_use]
    pub const fn new(session: Session) -> Self {
        Self { session }
    }

    /// The session the calls go over.
    #[must_use]
    pub const fn session(&self) -> &Session {
        &self.session
    }

    async fn call(&self, rpc: &str) -> Result<Call<Stream>, drpc::Error> {
        Ok(Call::new(self.session.open().await?, rpc))
    }

    async fn unary<M: Message + Default>(&self, rpc: &str, request: &impl Message) -> Result<M, Error> {
        let size = request.encoded_len();
        if size > drpc::MAX_MESSAGE_SIZE {
            // Checked before a stream is opened.
            return Err(drpc::Error::TooLarge { size, limit: drpc::MAX_MESSAGE_SIZE }.into());
        }
        let _permit = self.session.large_message_permit(size).await;
        let stream = self.session.open().await.map_err(drpc::Error::from)?;
        Ok(drpc::client::unary(stream, rpc, request).await?)
    }

    /// Waits for a job, for hours if necessary. Once `cancel` resolves, the server is asked to end the wait; the answer
    /// may still be a job, which must be run then. None means that the wait was canceled.
    ///
    /// # Errors
    /// How the call ended; [`drpc::Error::NoAnswer`] when the server could not prepare the job it had chosen.
    pub async fn acquire(&self, cancel: impl Future<Output = ()>) -> Result<Option<AcquiredJob>, Error> {
        let mut call = self.call(rpc::ACQUIRE_JOB_WITH_CANCEL).await?;
        call.flush().await?;
        let mut cancel = pin!(cancel);
        let mut canceled = false;
        let answer: Option<AcquiredJob> = loop {
            tokio::select! {
                biased;
                answer = call.recv() => break answer?,
                () = &mut cancel, if !canceled => {
                    canceled = true;
                    call.send(&CancelAcquire {}).await?;
                    call.flush().await?;
                }
            }
        };
        let job = answer.ok_or(drpc::Error::NoAnswer)?;
        // The server ends the call. The job is here, so any other end is fine, too.
        let _ = tokio::time::timeout(ACQUIRE_END, call.recv::<AcquiredJob>()).await;
        Ok((!job.job_id.is_empty()).then_some(job))
    }

    /// Checks the cost of a build against the quota.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn commit_quota(&self, request: &CommitQuotaRequest) -> Result<CommitQuotaResponse, Error> {
        self.unary(rpc::COMMIT_QUOTA, request).await
    }

    /// Sends a heartbeat, logs, or the results of parsing.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn update_job(&self, request: &UpdateJobRequest) -> Result<UpdateJobResponse, Error> {
        self.unary(rpc::UPDATE_JOB, request).await
    }

    /// Ends a job with an error.
    ///
    /// # Errors
    /// How the call ended.
    pub async fn fail_job(&self, job: &FailedJob) -> Result<(), Error> {
        self.unary::<Empty>(rpc::FAIL_JOB, job).await.map(drop)
    }

    /// Ends a job with its results.
    ///
    /// # Errors
    /// How the call ended; [`drpc::Error::TooLarge`] when the results exceed one message.
    pub async fn complete_job(&self, job: &CompletedJob) -> Result<(), Error> {
        self.unary::<Empty>(rpc::COMPLETE_JOB, job).await.map(drop)
    }

    /// Sends a file to the server.
    ///
    /// # Errors
    /// How the call ended. An official server reports success even when it could not keep the file; then the
    /// CompleteJob that names the file fails.
    pub async fn upload_file(&self, kind: DataUploadType, data: Bytes) -> Result<(), Error> {
        let _permit = self.session.large_message_permit(data.len()).await;
        let messages = file::to_messages(kind, data)?;
        let mut call = self.call(rpc::UPLOAD_FILE).await?;
        for message in messages {
            call.send(&message).await?;
        }
        call.close_send().await?;
        let _: Empty = call.recv().await?.ok_or(drpc::Error::NoAnswer)?;
        call.close().await;
        Ok(())
    }

    /// Gets a file from the server and checks it.
    ///
    /// # Errors
    /// How the call ended, or why the messages are not the file.
    pub async fn download_file(&self, file_id: &str, kind: DataUploadType) -> Result<Bytes, Error> {
        let mut call = self.call(rpc::DOWNLOAD_FILE).await?;
        call.send(&FileRequest { file_id: file_id.to_owned(), upload_type: kind.into() }).await?;
        call.close_send().await?;
        let mut receiver = file::Receiver::new(file::MAX_SIZE);
        loop {
            let message: FileUpload = call.recv().await?.ok_or(file::Error::Ended)?;
            if let Some(file) = receiver.take(message)? {
                call.close().await;
                return Ok(file.data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_that_was_cut_short_is_made_again() {
        assert!(Error::from(drpc::Error::NoAnswer).is_retryable());
        assert!(!Error::from(drpc::Error::Reset).is_retryable());
        assert!(Error::from(file::Error::Ended).is_retryable());
        assert!(!Error::from(file::Error::Hash).is_retryable());
        assert!(!Error::from(file::Error::Refused("no such file".to_owned())).is_retryable());
    }
}
