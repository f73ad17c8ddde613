//! A call of a daemon whose name is known: reading its request, running its handler, answering.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Limits;
use crate::drpc::frame::FrameError;
use crate::drpc::server::{Event, Exchange};
use crate::drpc::{Error, Status};
use crate::elements::Request;

/// One of the places of a connection for calls at work. A call that only waits gives its place up.
#[derive(Debug)]
pub(crate) struct Seat {
    places: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Seat {
    /// A place of a stream that was just accepted.
    pub(crate) const fn new(places: Arc<Semaphore>, taken: OwnedSemaphorePermit) -> Self {
        Self { places, taken: Some(taken) }
    }

    /// A place for a stream that is served alone.
    pub(crate) fn alone() -> Self {
        Self { places: Arc::new(Semaphore::new(1)), taken: None }
    }

    /// Waits for a place if there is none.
    pub(crate) async fn take(&mut self) {
        if self.taken.is_none() {
            // The semaphore is never closed.
            self.taken = Arc::clone(&self.places).acquire_owned().await.ok();
        }
    }

    /// Gives the place up.
    pub(crate) fn leave(&mut self) {
        self.taken = None;
    }
}

/// A call whose name is known.
pub(crate) struct Called<'a> {
    pub(crate) exchange: Exchange,
    pub(crate) limits: Limits,
    pub(crate) seat: &'a mut Seat,
}

/// The byte stream for the next call, or why it carries none.
pub(crate) type Outcome = Result<Exchange, (Exchange, Error)>;

impl Called<'_> {
    /// Answers a name that nobody knows as the official server does.
    pub(crate) async fn unknown(self, name: &str) -> Outcome {
        let shown: String = name.chars().take(200).collect();
        let status = Status::new(format!("protocol error: unknown call {shown:?}"));
        self.finish(async |exchange| exchange.fail(&status).await).await
    }

    /// Runs the last step of a call and pairs its failure with the byte stream.
    pub(crate) async fn finish(
        mut self,
        step: impl AsyncFnOnce(&mut Exchange) -> Result<(), Error>,
    ) -> Outcome {
        match step(&mut self.exchange).await {
            Ok(()) => Ok(self.exchange),
            Err(error) => Err((self.exchange, error)),
        }
    }

    /// Answers with a message or an error.
    pub(crate) async fn answer(self, answer: Result<impl Message, Status>) -> Outcome {
        self.finish(async |exchange| match answer {
            Ok(answer) => answer_unary(exchange, &answer).await,
            Err(status) => exchange.fail(&status).await,
        })
        .await
    }

    /// Runs a call of one message and one answer.
    pub(crate) async fn unary<Q, A, F>(mut self, handler: impl FnOnce(Q, CancellationToken) -> F) -> Outcome
    where
        Q: Request,
        A: Message,
        F: Future<Output = Result<A, Status>>,
    {
        let request = match self.request::<Q>().await {
            Ok(request) => request,
            Err(error) => return self.broken(error).await,
        };
        // Until the answer is sent.
        let _reserved = self.exchange.take_reservation();
        let answer = watched(&mut self.exchange, |token| handler(request, token)).await;
        self.answer(answer).await
    }

    /// The one message of a request.
    pub(crate) async fn request<Q: Request>(&mut self) -> Result<Q, Error> {
        let request = self.exchange.request().await?;
        request.ok_or(Error::Protocol("a call ends without its request"))
    }

    /// A request that does not decode or is too long spoils its own call only; everything else spoils the byte stream.
    pub(crate) async fn broken(self, error: Error) -> Outcome {
        match error {
            Error::Decode(_) | Error::TooMany { .. } | Error::Frame(FrameError::TooLarge { .. }) => {
                let status = Status::chain(&error);
                self.finish(async |exchange| exchange.fail(&status).await).await
            }
            error => Err((self.exchange, error)),
        }
    }
}

async fn answer_unary(exchange: &mut Exchange, answer: &impl Message) -> Result<(), Error> {
    match exchange.send(answer).await {
        Err(error @ Error::TooLarge { .. }) => exchange.fail(&Status::chain(&error)).await,
        Err(error) => Err(error),
        Ok(()) => exchange.close_send().await,
    }
}

/// Runs a handler to its end and tells it when the caller gives up meanwhile.
pub(crate) async fn watched<T, F>(
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
