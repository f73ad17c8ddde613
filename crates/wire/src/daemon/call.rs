//! A call of a daemon whose name is known: its request is read, its handler runs, its answer is sent.

use std::future::Future;
use std::pin::pin;

use prost::Message;
use tokio_util::sync::CancellationToken;

use super::Limits;
use super::permit::CallPermit;
use crate::drpc::frame::FrameError;
use crate::drpc::server::{CallStream, Event};
use crate::drpc::{Error, Status};
use crate::elements::Request;
use crate::transfer::{ChunkWriter, Transfer};

/// A call whose name is known.
pub(crate) struct IncomingCall<'a> {
    pub(crate) stream: CallStream,
    pub(crate) limits: Limits,
    pub(crate) permit: &'a mut CallPermit,
}

/// The byte stream for the next call, or the error that ended it.
pub(crate) type CallResult = Result<CallStream, (CallStream, Error)>;

/// What answers the calls of a connection.
pub(crate) trait Calls: Send + Sync + 'static {
    /// Answers one call.
    fn call(&self, call: IncomingCall<'_>, name: &str) -> impl Future<Output = CallResult> + Send;
}

/// Why a transfer was not received.
enum TransferError {
    /// The byte stream failed.
    Call(Error),
    /// The sender gets this status.
    Refused(Status),
}

impl TransferError {
    fn refused(error: impl std::error::Error + 'static) -> Self {
        Self::Refused(Status::chain(&error))
    }
}

impl IncomingCall<'_> {
    /// Answers a call of an unknown name as the official server does.
    pub(crate) async fn unknown(self, name: &str) -> CallResult {
        let shortened: String = name.chars().take(200).collect();
        let status = Status::new(format!("protocol error: unknown call {shortened:?}"));
        self.finish(async |stream| stream.fail(&status).await).await
    }

    /// Runs the last step of a call and pairs its failure with the byte stream.
    pub(crate) async fn finish(
        mut self,
        step: impl AsyncFnOnce(&mut CallStream) -> Result<(), Error>,
    ) -> CallResult {
        match step(&mut self.stream).await {
            Ok(()) => Ok(self.stream),
            Err(error) => Err((self.stream, error)),
        }
    }

    /// Answers with a message or an error.
    pub(crate) async fn answer(self, answer: Result<impl Message, Status>) -> CallResult {
        self.finish(async |stream| match answer {
            Ok(answer) => answer_unary(stream, &answer).await,
            Err(status) => stream.fail(&status).await,
        })
        .await
    }

    /// Runs a call of one message and one answer.
    pub(crate) async fn unary<Q, A, F>(
        mut self,
        handler: impl FnOnce(Q, CancellationToken) -> F,
    ) -> CallResult
    where
        Q: Request,
        A: Message,
        F: Future<Output = Result<A, Status>>,
    {
        let request = match self.request::<Q>().await {
            Ok(request) => request,
            Err(error) => return self.reject_request(error).await,
        };
        // Until the answer is sent.
        let _reservation = self.stream.take_reservation();
        let answer = run_handler(&mut self.stream, |token| handler(request, token)).await;
        self.answer(answer).await
    }

    /// Runs a call that transfers content: `begin` chooses the destination by the header, `handler` gets the content
    /// once it is complete.
    pub(crate) async fn upload<T, W, A, F>(
        mut self,
        limit: usize,
        begin: impl AsyncFnOnce(&T::Header) -> Result<W, Status>,
        handler: impl FnOnce(T::Header, W, CancellationToken) -> F,
    ) -> CallResult
    where
        T: Transfer,
        W: ChunkWriter,
        A: Message,
        F: Future<Output = Result<A, Status>>,
    {
        let answer = match self.receive::<T, W>(limit, begin).await {
            Ok((header, content)) => {
                run_handler(&mut self.stream, |token| handler(header, content, token)).await
            }
            Err(TransferError::Refused(status)) => Err(status),
            Err(TransferError::Call(error)) => return self.reject_request(error).await,
        };
        self.answer(answer).await
    }

    /// Receives a transfer. Each message is written before the next is read, so that one is in memory at a time.
    async fn receive<T: Transfer, W: ChunkWriter>(
        &mut self,
        limit: usize,
        begin: impl AsyncFnOnce(&T::Header) -> Result<W, Status>,
    ) -> Result<(T::Header, W), TransferError> {
        let first = self.transfer_message::<T>().await?;
        let (mut transfer, header) = T::begin(first, limit).map_err(TransferError::refused)?;
        let mut content = begin(&header).await.map_err(TransferError::Refused)?;
        self.stream.release();
        while !transfer.is_complete().map_err(TransferError::refused)? {
            let message = self.transfer_message::<T>().await?;
            let data = transfer.take(message).map_err(TransferError::refused)?;
            content.write(data).await.map_err(TransferError::Refused)?;
            self.stream.release();
        }
        Ok((header, content))
    }

    async fn transfer_message<T: Transfer>(&mut self) -> Result<T::Message, TransferError> {
        let message = self.stream.request().await.map_err(TransferError::Call)?;
        message.ok_or_else(|| TransferError::refused(T::ENDED))
    }

    /// The one message of a request.
    pub(crate) async fn request<Q: Request>(&mut self) -> Result<Q, Error> {
        let request = self.stream.request().await?;
        request.ok_or(Error::Protocol("a call ends without its request"))
    }

    /// A request that does not decode or is too long ends its own call only; every other error ends the byte stream.
    pub(crate) async fn reject_request(self, error: Error) -> CallResult {
        match error {
            Error::Decode(_) | Error::TooMany { .. } | Error::Frame(FrameError::TooLarge { .. }) => {
                let status = Status::chain(&error);
                self.finish(async |stream| stream.fail(&status).await).await
            }
            error => Err((self.stream, error)),
        }
    }
}

async fn answer_unary(stream: &mut CallStream, answer: &impl Message) -> Result<(), Error> {
    match stream.send(answer).await {
        Err(error @ Error::TooLarge { .. }) => stream.fail(&Status::chain(&error)).await,
        Err(error) => Err(error),
        Ok(()) => stream.close_send().await,
    }
}

/// Runs a handler to its end, and cancels its token when the caller cancels the call or disconnects.
pub(super) async fn run_handler<T, F>(
    stream: &mut CallStream,
    handler: impl FnOnce(CancellationToken) -> F,
) -> Result<T, Status>
where
    F: Future<Output = Result<T, Status>>,
{
    let token = CancellationToken::new();
    let mut running = pin!(handler(token.clone()));
    stream.set_read_timeout(None);
    loop {
        tokio::select! {
            biased;
            result = &mut running => return result,
            event = stream.recv() => match event {
                // Messages after a complete request are ignored.
                Ok(Event::Message(_) | Event::CloseSend) => {}
                Ok(Event::Canceled) | Err(_) => {
                    token.cancel();
                    return running.await;
                }
            },
        }
    }
}
