//! The server's side: takes the streams of a session and runs the service on them.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::rpc;
use super::service::{Acquire, Service};
use crate::bytes::BoxedStream;
use crate::drpc::frame::FrameError;
use crate::drpc::server::{Event, Exchange};
use crate::drpc::{Error, Status};
use crate::file::{self, Receiver};
use crate::messages::provisioner::file_upload::Type;
use crate::messages::provisioner::{FailedFile, FileUpload};
use crate::messages::provisionerd::Empty;
use crate::mux::{self, Session};

/// What one connection may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls at once; further ones are answered with an error. Daemons need three.
    pub calls: usize,
    /// Longest uploaded file, in bytes.
    pub file_bytes: usize,
    /// Longest silence in the middle of a request and of a stream without a call, and longest time in which nothing of
    /// an answer is taken.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 16, file_bytes: file::LIMIT, patience: Duration::from_secs(60) }
    }
}

/// Serves a daemon until its session ends, and says why it ended. Handlers are told when that happens, and this
/// returns after the last of them. Close the session to stop. Dropping the future aborts the handlers.
pub async fn serve<S: Service>(session: &Session, service: Arc<S>, limits: Limits) -> mux::Error {
    let mut calls = JoinSet::new();
    let error = loop {
        tokio::select! {
            stream = session.accept() => match stream {
                Ok(stream) if calls.len() < limits.calls => {
                    calls.spawn(serve_stream(Box::new(stream), Arc::clone(&service), limits));
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

/// Serves the calls of one byte stream, one after the other.
pub async fn serve_stream<S: Service>(io: BoxedStream, service: Arc<S>, limits: Limits) {
    let mut exchange = Exchange::new(io);
    exchange.set_write_patience(Some(limits.patience));
    loop {
        exchange.set_patience(Some(limits.patience));
        let name = match exchange.next().await {
            Ok(Some(name)) => name,
            Ok(None) | Err(Error::Lost(_) | Error::Reset | Error::Stalled) => return,
            Err(error) => return refuse(exchange, Status::chain(&error), limits.patience).await,
        };
        let called = Called { exchange, limits };
        exchange = match called.run(&name, &*service).await {
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

/// A call whose name is known.
struct Called {
    exchange: Exchange,
    limits: Limits,
}

type Outcome = Result<Exchange, (Exchange, Error)>;

impl Called {
    async fn run<S: Service>(self, name: &str, service: &S) -> Outcome {
        match name {
            rpc::ACQUIRE_JOB_WITH_CANCEL => self.acquire(service, Acquire::new).await,
            rpc::ACQUIRE_JOB => self.acquire(service, Acquire::old).await,
            rpc::COMMIT_QUOTA => self.unary(|request, token| service.commit_quota(request, token)).await,
            rpc::UPDATE_JOB => self.unary(|request, token| service.update_job(request, token)).await,
            rpc::FAIL_JOB => self.unary(|job, token| empty(service.fail_job(job, token))).await,
            rpc::COMPLETE_JOB => self.unary(|job, token| empty(service.complete_job(job, token))).await,
            rpc::UPLOAD_FILE => self.upload(service).await,
            rpc::DOWNLOAD_FILE => self.download(service).await,
            unknown => {
                let shown: String = unknown.chars().take(200).collect();
                let status = Status::new(format!("protocol error: unknown call {shown:?}"));
                self.finish(async |exchange| exchange.fail(&status).await).await
            }
        }
    }

    /// Runs the last step of a call and pairs its failure with the byte stream.
    async fn finish(mut self, step: impl AsyncFnOnce(&mut Exchange) -> Result<(), Error>) -> Outcome {
        match step(&mut self.exchange).await {
            Ok(()) => Ok(self.exchange),
            Err(error) => Err((self.exchange, error)),
        }
    }

    async fn acquire<S: Service>(mut self, service: &S, start: fn(Exchange) -> Acquire) -> Outcome {
        // A daemon waits for hours without a word.
        self.exchange.set_patience(None);
        let mut call = start(self.exchange);
        let result = service.acquire(&mut call).await;
        match call.end(result).await {
            (exchange, Ok(())) => Ok(exchange),
            (exchange, Err(error)) => Err((exchange, error)),
        }
    }

    async fn unary<Q, A, F>(mut self, handler: impl FnOnce(Q, CancellationToken) -> F) -> Outcome
    where
        Q: Message + Default,
        A: Message,
        F: Future<Output = Result<A, Status>>,
    {
        let request = match self.exchange.request::<Q>().await {
            Ok(Some(request)) => request,
            Ok(None) => return Err((self.exchange, Error::Protocol("a call ends without its request"))),
            Err(error) => return self.broken(error).await,
        };
        let answer = watched(&mut self.exchange, |token| handler(request, token)).await;
        self.finish(async |exchange| match answer {
            Ok(answer) => answer_unary(exchange, &answer).await,
            Err(status) => exchange.fail(&status).await,
        })
        .await
    }

    /// A request that does not decode or is too long spoils its own call only; everything else spoils the byte stream.
    async fn broken(self, error: Error) -> Outcome {
        match error {
            Error::Decode(_) | Error::Frame(FrameError::TooLarge { .. }) => {
                let status = Status::chain(&error);
                self.finish(async |exchange| exchange.fail(&status).await).await
            }
            error => Err((self.exchange, error)),
        }
    }

    async fn upload<S: Service>(mut self, service: &S) -> Outcome {
        let mut receiver = Receiver::new(self.limits.file_bytes);
        let received = loop {
            match self.exchange.request::<FileUpload>().await {
                Ok(Some(message)) => match receiver.take(message) {
                    Ok(None) => {}
                    Ok(Some(file)) => break Ok(file),
                    Err(error) => break Err(Status::chain(&error)),
                },
                Ok(None) => break Err(Status::chain(&file::Error::Ended)),
                Err(error) => return self.broken(error).await,
            }
        };
        let answer = match received {
            Ok(file) => watched(&mut self.exchange, |token| service.upload_file(file, token)).await,
            Err(status) => Err(status),
        };
        self.finish(async |exchange| match answer {
            Ok(()) => answer_unary(exchange, &Empty {}).await,
            Err(status) => exchange.fail(&status).await,
        })
        .await
    }

    async fn download<S: Service>(mut self, service: &S) -> Outcome {
        let request = match self.exchange.request().await {
            Ok(Some(request)) => request,
            Ok(None) => return Err((self.exchange, Error::Protocol("a call ends without its request"))),
            Err(error) => return self.broken(error).await,
        };
        let answer = watched(&mut self.exchange, |token| service.download_file(request, token)).await;
        self.finish(async |exchange| send_file(exchange, answer).await).await
    }
}

async fn empty(result: impl Future<Output = Result<(), Status>>) -> Result<Empty, Status> {
    result.await.map(|()| Empty {})
}

async fn answer_unary(exchange: &mut Exchange, answer: &impl Message) -> Result<(), Error> {
    match exchange.send(answer).await {
        Err(error @ Error::TooLarge { .. }) => exchange.fail(&Status::chain(&error)).await,
        Err(error) => Err(error),
        Ok(()) => exchange.close_send().await,
    }
}

/// Sends a file, or the reason why there is none in the form daemons expect (wire-protocol 3.7).
async fn send_file(exchange: &mut Exchange, file: Result<Bytes, Status>) -> Result<(), Error> {
    let kind = crate::messages::provisioner::DataUploadType::UploadTypeModuleFiles;
    let pieces = file.and_then(|data| file::pieces(kind, data).map_err(|error| Status::chain(&error)));
    match pieces {
        Ok(pieces) => {
            for piece in pieces {
                exchange.send(&piece).await?;
            }
        }
        Err(status) => {
            let failed = FailedFile { error: status.text };
            exchange.send(&FileUpload { r#type: Some(Type::Error(failed)) }).await?;
        }
    }
    exchange.close_send().await
}

/// Runs a handler to its end and tells it when the caller gives up meanwhile.
async fn watched<T, F>(
    exchange: &mut Exchange,
    handler: impl FnOnce(CancellationToken) -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let token = CancellationToken::new();
    let mut running = pin!(handler(token.clone()));
    exchange.set_patience(None);
    loop {
        tokio::select! {
            biased;
            result = &mut running => return result,
            event = exchange.recv() => match event {
                // Words after a complete request mean nothing.
                Ok(Event::Message(_) | Event::CloseSend) => {}
                Ok(Event::GivenUp) | Err(_) => {
                    token.cancel();
                    return running.await;
                }
            },
        }
    }
}
