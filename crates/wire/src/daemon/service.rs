//! What a server implements to answer daemons.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drpc::server::{Event, Exchange};
use crate::drpc::{Error, MESSAGE, Status};
use crate::file::{Header, Sink, Source};
use crate::messages::provisionerd::{
    AcquiredJob, CommitQuotaRequest, CommitQuotaResponse, CompletedJob, FailedJob, FileRequest,
    UpdateJobRequest, UpdateJobResponse,
};

/// The time the old AcquireJob waits for a job.
const OLD_ACQUIRE: Duration = Duration::from_secs(5);

/// Answers the calls of one daemon.
///
/// Every method may run many times at once. `canceled` fires when the caller gives up or its connection is gone; the
/// future itself is never dropped, so that a handler decides for itself what may be left half done. An error goes to
/// the daemon as text and is not retried by it.
pub trait Service: Send + Sync + 'static {
    /// Where a file goes while it arrives.
    type Upload: Sink;
    /// Where a file comes from while it is sent.
    type Download: Source;

    /// Waits for a job and delivers it; returns without delivering when the daemon gave up (an empty answer follows).
    fn acquire(&self, call: &mut Acquire) -> impl Future<Output = Result<(), Status>> + Send;

    /// CommitQuota.
    fn commit_quota(
        &self,
        request: CommitQuotaRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<CommitQuotaResponse, Status>> + Send;

    /// UpdateJob.
    fn update_job(
        &self,
        request: UpdateJobRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<UpdateJobResponse, Status>> + Send;

    /// FailJob.
    fn fail_job(
        &self,
        job: FailedJob,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// CompleteJob.
    fn complete_job(
        &self,
        job: CompletedJob,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Looks at the announcement of an UploadFile before any byte of the file is read. It has to find out whether the
    /// daemon may send it: whatever it refuses costs no memory.
    fn begin_upload(&self, header: &Header) -> impl Future<Output = Result<Self::Upload, Status>> + Send;

    /// UploadFile, once the whole file is there and its hash has been checked.
    fn upload_file(
        &self,
        header: Header,
        file: Self::Upload,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// DownloadFile: the length and the hash of the file, and its content.
    fn download_file(
        &self,
        request: FileRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(usize, [u8; 32], Self::Download), Status>> + Send;
}

/// Why a daemon no longer waits for a job (wire-protocol 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenUp {
    /// It asked to stop waiting and listens for the answer: a job that is locked already is delivered all the same.
    Canceled,
    /// Its stream or connection is gone: a job that is locked already must be failed.
    Broken,
}

/// A daemon that waits for a job.
#[derive(Debug)]
pub struct Acquire {
    exchange: Exchange,
    /// The old, unary call, and when its wait ends.
    old: Option<Instant>,
    given_up: Option<GivenUp>,
    delivered: bool,
}

impl Acquire {
    pub(super) const fn new(exchange: Exchange) -> Self {
        Self { exchange, old: None, given_up: None, delivered: false }
    }

    pub(super) fn old(exchange: Exchange) -> Self {
        Self { old: Some(Instant::now() + OLD_ACQUIRE), ..Self::new(exchange) }
    }

    /// Waits until the daemon no longer waits. Once it has resolved it resolves at once. Nothing is lost when the
    /// future is dropped, so select over it and the job.
    pub async fn given_up(&mut self) -> GivenUp {
        if let Some(given_up) = self.given_up {
            return given_up;
        }
        let given_up = match self.old {
            None => wait_for_cancel(&mut self.exchange).await,
            Some(deadline) => {
                let waiting = wait_for_end(&mut self.exchange);
                tokio::time::timeout_at(deadline, waiting).await.unwrap_or(GivenUp::Canceled)
            }
        };
        self.given_up = Some(given_up);
        given_up
    }

    /// Delivers the one job of this call and ends it. Returns once the job is on its way.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the job exceeds one message: nothing was sent, fail the job and return an error.
    /// Otherwise the connection is gone: the daemon may or may not have the job.
    pub async fn deliver(&mut self, job: &AcquiredJob) -> Result<(), Error> {
        let size = prost::Message::encoded_len(job);
        if size > MESSAGE {
            return Err(Error::TooLarge { size, limit: MESSAGE });
        }
        self.delivered = true;
        self.exchange.send(job).await?;
        match self.old {
            None => self.exchange.close().await,
            Some(_) => self.exchange.close_send().await,
        }
    }

    /// Ends the call in the way its handler's result asks for, and gives the byte stream back.
    pub(super) async fn end(mut self, result: Result<(), Status>) -> (Exchange, Result<(), Error>) {
        let sent = match result {
            Ok(()) if self.delivered => Ok(()),
            Ok(()) => self.deliver(&AcquiredJob::default()).await,
            Err(status) => self.exchange.fail(&status).await,
        };
        (self.exchange, sent)
    }
}

/// On the bidirectional call any word of the daemon means that it gives up.
async fn wait_for_cancel(exchange: &mut Exchange) -> GivenUp {
    match exchange.recv().await {
        Ok(Event::Message(_)) => GivenUp::Canceled,
        Ok(Event::CloseSend | Event::GivenUp) | Err(_) => GivenUp::Broken,
    }
}

/// On the unary call messages and CloseSend are part of the request.
async fn wait_for_end(exchange: &mut Exchange) -> GivenUp {
    while let Ok(Event::Message(_) | Event::CloseSend) = exchange.recv().await {}
    GivenUp::Broken
}
