//! The server's side: accepts the streams of a session and runs the services on them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::call::{CallResult, Calls, IncomingCall, run_handler};
use super::permit::CallPermit;
use super::rpc;
use super::service::{Acquire, Service};
use crate::budget::Account;
use crate::bytes::BoxedStream;
use crate::drpc::server::CallStream;
use crate::drpc::{Error, Status};
use crate::extension::serve::GrantedCalls;
use crate::extension::{self, Extensions};
use crate::file::{self, CHUNK_SIZE, FileTransfer};
use crate::messages::provisioner::file_upload::Type;
use crate::messages::provisioner::{DataUploadType, FailedFile, FileUpload};
use crate::messages::provisionerd::Empty;
use crate::mux::{self, Session};
use crate::transfer::ChunkReader;

/// Limits of one connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls at work at once; further ones are read once one of them has ended. A daemon of one slot needs three.
    pub calls: usize,
    /// Calls that only wait (for a job, for notifications) and do not count as calls at work; further calls of any kind
    /// are answered with an error. A daemon needs one for each slot, and one for notifications.
    pub waiting: usize,
    /// Longest uploaded file, in bytes.
    pub file_bytes: usize,
    /// Longest state in a journal, in bytes.
    pub state_bytes: usize,
    /// Longest silence in the middle of a request and of a stream without a call, and longest time in which the caller
    /// reads nothing of an answer.
    pub io_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 16,
            waiting: extension::MAX_SLOTS + 8,
            file_bytes: file::MAX_SIZE,
            state_bytes: extension::MAX_STATE_SIZE,
            io_timeout: Duration::from_secs(60),
        }
    }
}

/// Serves a daemon until its session ends, and returns the cause. The tokens of running handlers are cancelled then, and
/// this returns after the last handler. Close the session to stop. Dropping the future aborts the handlers.
pub async fn serve<S: Service>(session: &Session, service: Arc<S>, limits: Limits) -> mux::Error {
    let services = Services { official: service, others: NoOthers };
    run(session, Arc::new(services), limits).await
}

/// As [`serve`], for a daemon to which extensions were granted at join (docs/extensions.md).
pub async fn serve_extended<S: Service, E: extension::Service>(
    session: &Session,
    service: Arc<S>,
    extensions: Arc<E>,
    granted: Extensions,
    limits: Limits,
) -> mux::Error {
    let others = GrantedCalls { service: extensions, granted };
    let services = Services { official: service, others };
    run(session, Arc::new(services), limits).await
}

/// Serves the calls of one byte stream, one after the other.
pub async fn serve_stream<S: Service>(io: BoxedStream, service: Arc<S>, limits: Limits) {
    let services = Services { official: service, others: NoOthers };
    serve_calls(&services, io, limits, CallPermit::unshared(), None).await;
}

/// Answers the calls of all streams of a session until it ends.
pub(crate) async fn run<C: Calls>(session: &Session, services: Arc<C>, limits: Limits) -> mux::Error {
    let semaphore = Arc::new(Semaphore::new(limits.calls));
    let mut calls = JoinSet::new();
    let error = loop {
        // A stream is accepted only with a permit for its call; until then it waits where its bytes are bounded.
        let next = async {
            let permit = Arc::clone(&semaphore).acquire_owned().await.expect("the semaphore is never closed");
            (permit, session.accept().await)
        };
        tokio::select! {
            (permit, stream) = next => match stream {
                Ok(stream) if calls.len() < limits.calls + limits.waiting => {
                    let (services, permit) = (Arc::clone(&services), CallPermit::new(Arc::clone(&semaphore), permit));
                    let account = session.account().cloned();
                    calls.spawn(async move {
                        serve_calls(&*services, Box::new(stream), limits, permit, account.as_ref()).await;
                    });
                }
                Ok(stream) => {
                    let status = Status::new("too many calls at once on this connection; wait for one to end");
                    calls.spawn(refuse(CallStream::new(Box::new(stream)), status, limits.io_timeout));
                }
                Err(error) => break error,
            },
            Some(ended) = calls.join_next() => report(ended),
        }
    };
    while let Some(ended) = calls.join_next().await {
        report(ended);
    }
    error
}

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a call's handler panicked; the daemon sees a lost call");
    }
}

/// Answers with an error without reading the call. Bounded in time, because a peer may read nothing.
async fn refuse(stream: CallStream, status: Status, limit: Duration) {
    let _ = tokio::time::timeout(limit, stream.refuse(&status)).await;
}

/// The services of a connection.
struct Services<S, O> {
    official: Arc<S>,
    /// Answers what is not an official call.
    others: O,
}

/// Official calls are all that exist.
struct NoOthers;

impl Calls for NoOthers {
    async fn call(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        call.unknown(name).await
    }
}

/// Answers the calls of one byte stream, one after the other.
async fn serve_calls<C: Calls>(
    services: &C,
    io: BoxedStream,
    limits: Limits,
    mut permit: CallPermit,
    account: Option<&Account>,
) {
    let mut stream = CallStream::new(io);
    if let Some(account) = account {
        stream.set_account(account);
    }
    stream.set_write_timeout(Some(limits.io_timeout));
    loop {
        stream.set_read_timeout(Some(limits.io_timeout));
        let name = match stream.next().await {
            Ok(Some(name)) => name,
            Ok(None) | Err(Error::Lost(_) | Error::Reset | Error::Stalled) => return,
            Err(error) => return refuse(stream, Status::chain(&error), limits.io_timeout).await,
        };
        permit.acquire().await;
        let call = IncomingCall { stream, limits, permit: &mut permit };
        stream = match services.call(call, &name).await {
            Ok(stream) => stream,
            Err((stream, error)) => {
                tracing::debug!(call = name, %error, "call failed");
                return match error {
                    Error::Lost(_) | Error::Reset | Error::Canceled | Error::Stalled => {}
                    error => refuse(stream, Status::chain(&error), limits.io_timeout).await,
                };
            }
        };
    }
}

impl<S: Service, O: Calls> Calls for Services<S, O> {
    async fn call(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        match name {
            rpc::ACQUIRE_JOB_WITH_CANCEL => acquire(call, &*self.official, Acquire::new).await,
            rpc::ACQUIRE_JOB => acquire(call, &*self.official, Acquire::old).await,
            // Most daemons only have a waiting acquire; boxed, the other calls do not enlarge its future.
            _ => Box::pin(self.work(call, name)).await,
        }
    }
}

impl<S: Service, O: Calls> Services<S, O> {
    async fn work(&self, call: IncomingCall<'_>, name: &str) -> CallResult {
        let service = &*self.official;
        match name {
            rpc::COMMIT_QUOTA => call.unary(|request, token| service.commit_quota(request, token)).await,
            rpc::UPDATE_JOB => call.unary(|request, token| service.update_job(request, token)).await,
            rpc::FAIL_JOB => call.unary(|job, token| empty(service.fail_job(job, token))).await,
            rpc::COMPLETE_JOB => call.unary(|job, token| empty(service.complete_job(job, token))).await,
            rpc::UPLOAD_FILE => {
                let limit = call.limits.file_bytes;
                let begin = async |header: &file::FileHeader| service.begin_upload(header).await;
                let end = |header, file, token| empty(service.upload_file(header, file, token));
                call.upload::<FileTransfer, _, _, _>(limit, begin, end).await
            }
            rpc::DOWNLOAD_FILE => download(call, service).await,
            other => self.others.call(call, other).await,
        }
    }
}

async fn acquire<S: Service>(
    mut call: IncomingCall<'_>,
    service: &S,
    start: fn(CallStream) -> Acquire,
) -> CallResult {
    // A daemon waits for hours without sending anything.
    call.permit.release();
    call.stream.set_read_timeout(None);
    let mut call = start(call.stream);
    let result = service.acquire(&mut call).await;
    match call.end(result).await {
        (stream, Ok(())) => Ok(stream),
        (stream, Err(error)) => Err((stream, error)),
    }
}

async fn download<S: Service>(mut call: IncomingCall<'_>, service: &S) -> CallResult {
    let request = match call.request().await {
        Ok(request) => request,
        Err(error) => return call.reject_request(error).await,
    };
    // A chunk, and the message with it.
    call.stream.reserve(2 * CHUNK_SIZE).await;
    let answer = run_handler(&mut call.stream, |token| service.download_file(request, token)).await;
    call.finish(async |stream| send_file(stream, answer).await).await
}

async fn empty(result: impl Future<Output = Result<(), Status>>) -> Result<Empty, Status> {
    result.await.map(|()| Empty {})
}

/// Sends a file, or the reason why there is none in the form daemons expect (wire-protocol 3.7).
async fn send_file<D: ChunkReader>(
    stream: &mut CallStream,
    file: Result<(usize, [u8; 32], D), Status>,
) -> Result<(), Error> {
    let header = file.and_then(|(size, hash, content)| {
        let header = file::header(DataUploadType::UploadTypeModuleFiles, size, hash);
        Ok((header.map_err(|error| Status::chain(&error))?, hash, content))
    });
    let sent = match header {
        Ok((header, hash, content)) => {
            stream.send(&header).await?;
            send_content(stream, content, Bytes::copy_from_slice(&hash)).await?
        }
        Err(status) => Err(status),
    };
    if let Err(status) = sent {
        let failed = FailedFile { error: status.text };
        stream.send(&FileUpload { r#type: Some(Type::Error(failed)) }).await?;
    }
    stream.close_send().await
}

/// Sends the content of a file in chunks while it is read.
async fn send_content<D: ChunkReader>(
    stream: &mut CallStream,
    mut content: D,
    hash: Bytes,
) -> Result<Result<(), Status>, Error> {
    let (mut chunk, mut index) = (BytesMut::new(), 0);
    loop {
        let mut data = match content.read().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(status) => return Ok(Err(status)),
        };
        while !data.is_empty() {
            let part = data.split_to(data.len().min(CHUNK_SIZE - chunk.len()));
            chunk.extend_from_slice(&part);
            if chunk.len() == CHUNK_SIZE {
                stream.send(&file::chunk(chunk.split().freeze(), &hash, index)).await?;
                index += 1;
            }
        }
    }
    if !chunk.is_empty() {
        stream.send(&file::chunk(chunk.freeze(), &hash, index)).await?;
    }
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::drpc::frame::{self, Kind};

    /// A file that is read in pieces, the next one first. Perhaps reading fails at the end.
    struct Pieces(Vec<Bytes>, Option<Status>);

    impl ChunkReader for Pieces {
        async fn read(&mut self) -> Result<Option<Bytes>, Status> {
            match self.0.pop() {
                Some(piece) => Ok(Some(piece)),
                None => self.1.take().map_or(Ok(None), Err),
            }
        }
    }

    /// What a caller receives of a file that is read in pieces of these sizes: the sizes of the chunks, and the file.
    async fn download(sizes: &[usize], failure: Option<Status>) -> (Vec<usize>, Result<Bytes, file::Error>) {
        let size = sizes.iter().sum();
        let whole: Bytes = (0..size).map(|index| (index % 251) as u8).collect();
        let (hash, mut content) = (file::hash(&whole), whole.clone());
        let mut pieces: Vec<_> = sizes.iter().map(|size| content.split_to(*size)).collect();
        pieces.reverse();

        let (near, mut far) = tokio::io::duplex(64 << 10);
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, Kind::INVOKE, false, (1, 1), b"/a");
        far.write_all(&bytes).await.unwrap();
        let mut stream = CallStream::new(Box::new(near));
        stream.next().await.unwrap();
        let sending = async move { send_file(&mut stream, Ok((size, hash, Pieces(pieces, failure)))).await };
        let receiving = async {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).await.unwrap();
            bytes
        };
        let (sent, received) = tokio::join!(sending, receiving);
        sent.unwrap();

        let (packets, end) = frame::parse(&received);
        assert_eq!((packets.last().map(|last| last.kind), end), (Some(Kind::CLOSE_SEND), Ok(())));
        let mut receiver = file::Receiver::new(file::MAX_SIZE);
        let (mut chunks, mut result) = (Vec::new(), Err(file::Error::Ended));
        for packet in &packets[..packets.len() - 1] {
            let message = FileUpload::decode(packet.data.clone()).unwrap();
            if let Some(Type::ChunkPiece(piece)) = &message.r#type {
                chunks.push(piece.data.len());
            }
            match receiver.take(message) {
                Ok(Some(file)) => result = Ok(file.data),
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        assert!(result.as_ref().is_ok_and(|data| *data == whole) || result.is_err());
        (chunks, result)
    }

    #[tokio::test]
    async fn a_file_leaves_in_whole_chunks_however_it_is_read() {
        let chunk = CHUNK_SIZE;
        for (pieces, chunks) in [
            (&[][..], &[][..]),
            (&[1], &[1]),
            (&[1, 0, 2], &[3]),
            (&[chunk], &[chunk]),
            (&[3, chunk - 3], &[chunk]),
            (&[3, chunk, 5], &[chunk, 8]),
            (&[2 * chunk + 7, chunk - 6], &[chunk, chunk, chunk, 1]),
        ] {
            let (sent, file) = download(pieces, None).await;
            assert_eq!(sent, chunks, "{pieces:?}");
            assert_eq!(file.map(|data| data.len()), Ok(pieces.iter().sum()), "{pieces:?}");
        }
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_read_to_its_end_says_why() {
        let (sent, file) = download(&[CHUNK_SIZE + 1], Some(Status::new("the disk failed"))).await;
        assert_eq!((sent, file), (vec![CHUNK_SIZE], Err(file::Error::Refused("the disk failed".to_owned()))));
    }
}
