//! The server's side: takes the streams of a session and runs the services on them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::called::{Called, Outcome, Seat, watched};
use super::rpc;
use super::service::{Acquire, Service};
use crate::budget::Account;
use crate::bytes::BoxedStream;
use crate::drpc::server::Exchange;
use crate::drpc::{Error, Status};
use crate::extension::{self, Extensions, NoService};
use crate::file::{self, CHUNK, Pieces, Sink as _, Source, Step};
use crate::messages::provisioner::file_upload::Type;
use crate::messages::provisioner::{DataUploadType, FailedFile, FileUpload};
use crate::messages::provisionerd::Empty;
use crate::mux::{self, Session};

/// What one connection may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls at work at once; further ones are read when one of them has ended. A daemon of one slot needs three.
    pub calls: usize,
    /// Calls that only wait (for a job, for notices) and are not counted among those at work; further calls of any kind
    /// are answered with an error. A daemon needs one for each slot, and one for notices.
    pub waiting: usize,
    /// Longest uploaded file, in bytes.
    pub file_bytes: usize,
    /// Longest state in a journal, in bytes.
    pub state_bytes: usize,
    /// Longest silence in the middle of a request and of a stream without a call, and longest time in which nothing of
    /// an answer is taken.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            calls: 16,
            waiting: extension::SLOTS + 8,
            file_bytes: file::LIMIT,
            state_bytes: extension::STATE,
            patience: Duration::from_secs(60),
        }
    }
}

/// Serves a daemon until its session ends, and says why it ended. Handlers are told when that happens, and this
/// returns after the last of them. Close the session to stop. Dropping the future aborts the handlers.
pub async fn serve<S: Service>(session: &Session, service: Arc<S>, limits: Limits) -> mux::Error {
    let services =
        Services { official: service, extensions: None::<Arc<NoService>>, granted: Extensions::NONE };
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
    let services = Services { official: service, extensions: Some(extensions), granted };
    run(session, Arc::new(services), limits).await
}

/// Serves the calls of one byte stream, one after the other.
pub async fn serve_stream<S: Service>(io: BoxedStream, service: Arc<S>, limits: Limits) {
    let services =
        Services { official: service, extensions: None::<Arc<NoService>>, granted: Extensions::NONE };
    services.stream(io, limits, Seat::alone(), None).await;
}

async fn run<S: Service, E: extension::Service>(
    session: &Session,
    services: Arc<Services<S, E>>,
    limits: Limits,
) -> mux::Error {
    let places = Arc::new(Semaphore::new(limits.calls));
    let mut calls = JoinSet::new();
    let error = loop {
        // A stream is taken only when there is a place for its call; until then it waits where its bytes are bounded.
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await.expect("the semaphore is never closed");
            (place, session.accept().await)
        };
        tokio::select! {
            (place, stream) = next => match stream {
                Ok(stream) if calls.len() < limits.calls + limits.waiting => {
                    let (services, seat) = (Arc::clone(&services), Seat::new(Arc::clone(&places), place));
                    let account = session.account().cloned();
                    calls.spawn(async move {
                        services.stream(Box::new(stream), limits, seat, account.as_ref()).await;
                    });
                }
                Ok(stream) => {
                    let status = Status::new("too many calls at once on this connection; wait for one to end");
                    calls.spawn(refuse(Exchange::new(Box::new(stream)), status, limits.patience));
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

/// Answers with an error without looking at the call; bounded in time, for a peer that reads nothing.
async fn refuse(exchange: Exchange, status: Status, patience: Duration) {
    let _ = tokio::time::timeout(patience, exchange.refuse(&status)).await;
}

/// Everything a connection can call.
struct Services<S, E> {
    official: Arc<S>,
    extensions: Option<Arc<E>>,
    granted: Extensions,
}

impl<S: Service, E: extension::Service> Services<S, E> {
    async fn stream(&self, io: BoxedStream, limits: Limits, mut seat: Seat, account: Option<&Account>) {
        let mut exchange = Exchange::new(io);
        if let Some(account) = account {
            exchange.set_account(account);
        }
        exchange.set_write_patience(Some(limits.patience));
        loop {
            exchange.set_patience(Some(limits.patience));
            let name = match exchange.next().await {
                Ok(Some(name)) => name,
                Ok(None) | Err(Error::Lost(_) | Error::Reset | Error::Stalled) => return,
                Err(error) => return refuse(exchange, Status::chain(&error), limits.patience).await,
            };
            seat.take().await;
            let called = Called { exchange, limits, seat: &mut seat };
            exchange = match self.call(called, &name).await {
                Ok(exchange) => exchange,
                Err((exchange, error)) => {
                    tracing::debug!(call = name, %error, "call broken");
                    return match error {
                        Error::Lost(_) | Error::Reset | Error::Canceled | Error::Stalled => {}
                        error => refuse(exchange, Status::chain(&error), limits.patience).await,
                    };
                }
            };
        }
    }

    async fn call(&self, called: Called<'_>, name: &str) -> Outcome {
        match name {
            rpc::ACQUIRE_JOB_WITH_CANCEL => acquire(called, &*self.official, Acquire::new).await,
            rpc::ACQUIRE_JOB => acquire(called, &*self.official, Acquire::old).await,
            // A waiting acquire is all that most daemons have; it shall not take the room of every other call as well.
            _ => Box::pin(self.work(called, name)).await,
        }
    }

    async fn work(&self, called: Called<'_>, name: &str) -> Outcome {
        let service = &*self.official;
        match name {
            rpc::COMMIT_QUOTA => called.unary(|request, token| service.commit_quota(request, token)).await,
            rpc::UPDATE_JOB => called.unary(|request, token| service.update_job(request, token)).await,
            rpc::FAIL_JOB => called.unary(|job, token| empty(service.fail_job(job, token))).await,
            rpc::COMPLETE_JOB => called.unary(|job, token| empty(service.complete_job(job, token))).await,
            rpc::UPLOAD_FILE => upload(called, service).await,
            rpc::DOWNLOAD_FILE => download(called, service).await,
            other => match &self.extensions {
                Some(service) => extension::serve::call(called, other, &**service, self.granted).await,
                None => called.unknown(other).await,
            },
        }
    }
}

async fn acquire<S: Service>(mut called: Called<'_>, service: &S, start: fn(Exchange) -> Acquire) -> Outcome {
    // A daemon waits for hours without a word.
    called.seat.leave();
    called.exchange.set_patience(None);
    let mut call = start(called.exchange);
    let result = service.acquire(&mut call).await;
    match call.end(result).await {
        (exchange, Ok(())) => Ok(exchange),
        (exchange, Err(error)) => Err((exchange, error)),
    }
}

async fn upload<S: Service>(mut called: Called<'_>, service: &S) -> Outcome {
    let (mut pieces, mut begun) = (Pieces::new(called.limits.file_bytes), None);
    let received = loop {
        let message = match called.exchange.request::<FileUpload>().await {
            Ok(Some(message)) => message,
            Ok(None) => break Err(Status::chain(&file::Error::Ended)),
            Err(error) => return called.broken(error).await,
        };
        let taken = async {
            match pieces.take(message).map_err(|error| Status::chain(&error))? {
                Step::Header(header) => {
                    let file = service.begin_upload(&header).await?;
                    begun = Some((header, file));
                }
                Step::Data(data) => {
                    let (_, file) = begun.as_mut().ok_or_else(|| Status::chain(&file::Error::NoHeader))?;
                    file.write(data).await?;
                }
            }
            pieces.is_complete().map_err(|error| Status::chain(&error))
        };
        let taken = taken.await;
        called.exchange.release();
        match taken {
            Ok(false) => {}
            Ok(true) => break begun.take().ok_or_else(|| Status::chain(&file::Error::NoHeader)),
            Err(status) => break Err(status),
        }
    };
    let answer = match received {
        Ok((header, file)) => {
            watched(&mut called.exchange, |token| empty(service.upload_file(header, file, token))).await
        }
        Err(status) => Err(status),
    };
    called.answer(answer).await
}

async fn download<S: Service>(mut called: Called<'_>, service: &S) -> Outcome {
    let request = match called.request().await {
        Ok(request) => request,
        Err(error) => return called.broken(error).await,
    };
    // A piece, and the message that is made of it.
    called.exchange.reserve(2 * CHUNK).await;
    let answer = watched(&mut called.exchange, |token| service.download_file(request, token)).await;
    called.finish(async |exchange| send_file(exchange, answer).await).await
}

async fn empty(result: impl Future<Output = Result<(), Status>>) -> Result<Empty, Status> {
    result.await.map(|()| Empty {})
}

/// Sends a file, or the reason why there is none in the form daemons expect (wire-protocol 3.7).
async fn send_file<D: Source>(
    exchange: &mut Exchange,
    file: Result<(usize, [u8; 32], D), Status>,
) -> Result<(), Error> {
    let announced = file.and_then(|(size, hash, content)| {
        let header = file::announce(DataUploadType::UploadTypeModuleFiles, size, hash);
        Ok((header.map_err(|error| Status::chain(&error))?, hash, content))
    });
    let sent = match announced {
        Ok((header, hash, content)) => {
            exchange.send(&header).await?;
            send_content(exchange, content, Bytes::copy_from_slice(&hash)).await?
        }
        Err(status) => Err(status),
    };
    if let Err(status) = sent {
        let failed = FailedFile { error: status.text };
        exchange.send(&FileUpload { r#type: Some(Type::Error(failed)) }).await?;
    }
    exchange.close_send().await
}

/// Sends the content of a file in pieces, each while it is read.
async fn send_content<D: Source>(
    exchange: &mut Exchange,
    mut content: D,
    hash: Bytes,
) -> Result<Result<(), Status>, Error> {
    let (mut piece, mut index) = (BytesMut::new(), 0);
    loop {
        let mut data = match content.read().await {
            Ok(Some(data)) => data,
            Ok(None) => break,
            Err(status) => return Ok(Err(status)),
        };
        while !data.is_empty() {
            let part = data.split_to(data.len().min(CHUNK - piece.len()));
            piece.extend_from_slice(&part);
            if piece.len() == CHUNK {
                exchange.send(&file::piece(piece.split().freeze(), &hash, index)).await?;
                index += 1;
            }
        }
    }
    if !piece.is_empty() {
        exchange.send(&file::piece(piece.freeze(), &hash, index)).await?;
    }
    Ok(Ok(()))
}
