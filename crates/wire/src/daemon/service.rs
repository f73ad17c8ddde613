//! The calls that a server implements for daemons.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::drpc::server::{CallStream, Event};
use crate::drpc::{Error, MAX_MESSAGE_SIZE, Status};
use crate::file::FileHeader;
use crate::messages::provisionerd::{
    AcquiredJob, CommitQuotaRequest, CommitQuotaResponse, CompletedJob, FailedJob, FileRequest,
    UpdateJobRequest, UpdateJobResponse,
};
use crate::transfer::{ChunkReader, ChunkWriter};

/// How long the old AcquireJob waits for a job.
const OLD_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers the calls of one daemon.
///
/// Every method may run many times at once. `canceled` fires when the caller cancels the call or disconnects; the future
/// itself is never dropped, so that a handler decides for itself what may stay unfinished. An error goes to the daemon
/// as text, and the daemon does not retry it.
pub trait Service: Send + Sync + 'static {
    /// Receives an uploaded file.
    type Upload: ChunkWriter;
    /// Provides a downloaded file.
    type Download: ChunkReader;

    /// Waits for a job and delivers it; returns without delivering when the daemon stopped waiting (an empty answer
    /// follows).
    fn acquire(&self, call: &mut Acquire) -> impl Future<Output = Result<(), Status>> + Send;

    fn commit_quota(
        &self,
        request: CommitQuotaRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<CommitQuotaResponse, Status>> + Send;

    fn update_job(
        &self,
        request: UpdateJobRequest,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<UpdateJobResponse, Status>> + Send;

    fn fail_job(
        &self,
        job: FailedJob,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    fn complete_job(
        &self,
        job: CompletedJob,
        canceled: CancellationToken,
    ) -> impl Future<Output = Result<(), Status>> + Send;

    /// Checks the header of an UploadFile before any byte of the file is read. It has to find out whether the daemon may
    /// send the file: a refused file costs no memory.
    fn begin_upload(&self, header: &FileHeader) -> impl Future<Output = Result<Self::Upload, Status>> + Send;

    /// UploadFile, once the file is complete and its hash has been checked.
    fn upload_file(
        &self,
        header: FileHeader,
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
pub enum CloseReason {
    /// It canceled the wait and reads the answer: a job that is locked already is delivered.
    Canceled,
    /// Its stream or its connection ended: a job that is locked already must be failed.
    Disconnected,
}

/// A daemon that waits for a job.
#[derive(Debug)]
pub struct Acquire {
    stream: CallStream,
    /// The old, unary call, and when its wait ends.
    old: Option<Instant>,
    closed: Option<CloseReason>,
    delivered: bool,
}

impl Acquire {
    pub(super) const fn new(stream: CallStream) -> Self {
        Self { stream, old: None, closed: None, delivered: false }
    }

    pub(super) fn old(stream: CallStream) -> Self {
        Self { old: Some(Instant::now() + OLD_ACQUIRE_TIMEOUT), ..Self::new(stream) }
    }

    /// Completes when the daemon no longer waits, and from then on at once. Cancel safe: select over it and the job.
    pub async fn closed(&mut self) -> CloseReason {
        if let Some(reason) = self.closed {
            return reason;
        }
        let reason = match self.old {
            None => wait_for_cancel(&mut self.stream).await,
            Some(deadline) => {
                let waiting = wait_for_end(&mut self.stream);
                tokio::time::timeout_at(deadline, waiting).await.unwrap_or(CloseReason::Canceled)
            }
        };
        self.closed = Some(reason);
        reason
    }

    /// Delivers the one job of this call and ends it. Returns once the job is on its way.
    ///
    /// # Errors
    /// [`Error::TooLarge`] when the job exceeds one message: nothing was sent, fail the job and return an error.
    /// Otherwise the connection is lost: the daemon may or may not have the job.
    pub async fn deliver(&mut self, job: &AcquiredJob) -> Result<(), Error> {
        let size = prost::Message::encoded_len(job);
        if size > MAX_MESSAGE_SIZE {
            return Err(Error::TooLarge { size, limit: MAX_MESSAGE_SIZE });
        }
        self.delivered = true;
        self.stream.send(job).await?;
        match self.old {
            None => self.stream.close().await,
            Some(_) => self.stream.close_send().await,
        }
    }

    /// Ends the call as the result of its handler demands, and returns the byte stream.
    pub(super) async fn end(mut self, result: Result<(), Status>) -> (CallStream, Result<(), Error>) {
        let sent = match result {
            Ok(()) if self.delivered => Ok(()),
            Ok(()) => self.deliver(&AcquiredJob::default()).await,
            Err(status) => self.stream.fail(&status).await,
        };
        (self.stream, sent)
    }
}

/// On the bidirectional call any message of the daemon cancels the wait.
async fn wait_for_cancel(stream: &mut CallStream) -> CloseReason {
    match stream.recv().await {
        Ok(Event::Message(_)) => CloseReason::Canceled,
        Ok(Event::CloseSend | Event::Canceled) | Err(_) => CloseReason::Disconnected,
    }
}

/// On the unary call messages and CloseSend are part of the request.
async fn wait_for_end(stream: &mut CallStream) -> CloseReason {
    while let Ok(Event::Message(_) | Event::CloseSend) = stream.recv().await {}
    CloseReason::Disconnected
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use prost::Message as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;
    use crate::drpc::frame::{self, Kind, Packet};

    /// A wait of a daemon whose connection has room for so many bytes of the answer.
    async fn waiting(room: usize) -> (Acquire, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(room);
        let mut stream = CallStream::new(Box::new(near));
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, Kind::INVOKE, false, (1, 1), b"/a");
        far.write_all(&bytes).await.unwrap();
        stream.next().await.unwrap();
        (Acquire::new(stream), far)
    }

    /// The packets of an answer up to the end of its call.
    async fn answer(mut far: DuplexStream) -> Vec<Packet> {
        let mut bytes = Vec::new();
        loop {
            let (packets, _) = frame::parse(&bytes);
            if packets.last().is_some_and(|last| last.kind != Kind::MESSAGE) {
                return packets;
            }
            assert!(far.read_buf(&mut bytes).await.unwrap() > 0, "{packets:?}");
        }
    }

    fn job(size: usize) -> AcquiredJob {
        let job = AcquiredJob { job_id: "x".repeat(size - 5), ..AcquiredJob::default() };
        assert_eq!(job.encoded_len(), size);
        job
    }

    #[tokio::test]
    async fn a_job_of_the_largest_size_is_delivered_and_a_larger_one_is_not_sent() {
        for (size, kinds) in
            [(MAX_MESSAGE_SIZE, &[Kind::MESSAGE, Kind::CLOSE][..]), (MAX_MESSAGE_SIZE + 1, &[Kind::ERROR])]
        {
            let (mut acquire, far) = waiting(1 << 20).await;
            let answer = tokio::spawn(answer(far));
            let delivered = acquire.deliver(&job(size)).await;
            let result = match delivered {
                Ok(()) => Ok(()),
                Err(Error::TooLarge { size: found, limit: MAX_MESSAGE_SIZE }) if found == size => {
                    Err(Status::new("too large"))
                }
                Err(error) => panic!("{error}"),
            };
            acquire.end(result).await.1.unwrap();
            let found: Vec<_> = answer.await.unwrap().iter().map(|packet| packet.kind).collect();
            assert_eq!(found, kinds, "{size} bytes");
        }
    }

    #[tokio::test]
    async fn a_wait_without_a_job_ends_with_an_empty_one() {
        let (acquire, far) = waiting(1024).await;
        acquire.end(Ok(())).await.1.unwrap();
        let packets = answer(far).await;
        assert_eq!(
            packets.iter().map(|packet| packet.kind).collect::<Vec<_>>(),
            [Kind::MESSAGE, Kind::CLOSE]
        );
        assert!(packets[0].data.is_empty());
    }

    /// The peer reads nothing. It is not given a second time to do so.
    #[tokio::test(start_paused = true)]
    async fn nothing_is_sent_after_a_job_that_could_not_be_delivered() {
        let (mut acquire, _far) = waiting(1024).await;
        acquire.stream.set_write_timeout(Some(Duration::from_secs(60)));
        let delivered = acquire.deliver(&job(MAX_MESSAGE_SIZE)).await;
        assert!(matches!(delivered, Err(Error::Stalled)), "{delivered:?}");
        let (_, ended) = acquire.end(Ok(())).now_or_never().expect("there is nothing to wait for");
        ended.unwrap();
    }

    #[tokio::test]
    async fn a_wait_is_over_for_the_reason_for_which_it_ended_first() {
        for (kind, expected) in [
            (Kind::MESSAGE, CloseReason::Canceled),
            (Kind::CLOSE_SEND, CloseReason::Disconnected),
            (Kind::CANCEL, CloseReason::Disconnected),
        ] {
            let (mut acquire, mut far) = waiting(1024).await;
            assert!(acquire.closed().now_or_never().is_none());
            let mut bytes = Vec::new();
            frame::encode(&mut bytes, kind, false, (1, 2), b"");
            far.write_all(&bytes).await.unwrap();
            assert_eq!(acquire.closed().await, expected, "{kind:?}");
            drop(far);
            assert_eq!(acquire.closed().now_or_never(), Some(expected), "{kind:?}");
        }
    }
}
