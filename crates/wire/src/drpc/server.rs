//! The answering end of calls: one byte stream, one call after the other (wire-protocol 2.4).

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::error::{Error, Status};
use super::frame::{Kind, Packet};
use super::stream::Stream;
use crate::budget::{Account, Reservation};
use crate::bytes::BoxedStream;
use crate::elements::{self, Request};

/// What a message costs while it is worked on, in multiples of its size: it is decoded, turned into rows, and written.
const COPIES: usize = 6;
/// What each of its parts costs besides, in bytes.
const PART: usize = 1024;
/// Messages that cost less need no reservation.
const UNRESERVED: usize = 256 << 10;

/// What a caller says after the Invoke of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// One message, not decoded yet.
    Message(Bytes),
    /// No message follows.
    CloseSend,
    /// The caller wants nothing more: it closed or canceled the call, or began another.
    GivenUp,
}

/// A byte stream of a caller.
pub struct Exchange {
    /// Boxed, because an exchange is handed from layer to layer and each keeps a place for it.
    stream: Box<Stream<BoxedStream>>,
    /// A packet that belongs to a later call.
    stashed: Option<Packet>,
    /// The current call has ended on this side.
    over: bool,
}

impl Exchange {
    /// Serves a byte stream of a caller.
    #[must_use]
    pub fn new(io: BoxedStream) -> Self {
        Self { stream: Box::new(Stream::new(io, 0)), stashed: None, over: true }
    }

    /// Counts what is received against an account.
    pub fn set_account(&mut self, account: &Account) {
        self.stream.reservation = Some(account.reserve());
    }

    /// What was received so far is of no use any more: it counts no longer.
    pub fn release(&mut self) {
        self.stream.release();
    }

    /// Reserves `bytes` in all for what is sent.
    pub async fn reserve(&mut self, bytes: usize) {
        if let Some(reservation) = &mut self.stream.reservation {
            reservation.grow(bytes).await;
        }
    }

    /// Takes what is reserved, for whoever works on what was received; further messages count on their own.
    pub(crate) fn take_reservation(&mut self) -> Option<Reservation> {
        let reservation = self.stream.reservation.as_mut()?;
        let fresh = reservation.sibling();
        Some(std::mem::replace(reservation, fresh))
    }

    /// Sets the longest time a caller may take nothing of its answer; none for ever.
    pub const fn set_write_patience(&mut self, patience: Option<Duration>) {
        self.stream.write_patience = patience;
    }

    /// Sets the longest silence [`recv`](Self::recv) and [`next`](Self::next) accept; none for ever.
    pub const fn set_patience(&mut self, patience: Option<Duration>) {
        self.stream.patience = patience;
    }

    /// The name of the next call; none at the end of the byte stream.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        self.stream.discard();
        self.stream.release();
        loop {
            let packet = match self.stashed.take() {
                Some(packet) => packet,
                None => match self.stream.recv().await? {
                    Some(packet) => packet,
                    None => return Ok(None),
                },
            };
            if packet.stream <= self.stream.id {
                continue;
            }
            match packet.kind {
                Kind::INVOKE => {
                    self.stream.restart(packet.stream);
                    self.over = false;
                    return Ok(Some(String::from_utf8_lossy(&packet.data).into_owned()));
                }
                // Metadata is accepted and ignored; ends of a call that never began are harmless.
                Kind::METADATA | Kind::CANCEL | Kind::CLOSE | Kind::CLOSE_SEND | Kind::ERROR => {}
                _ if packet.control => {}
                Kind::MESSAGE => return Err(Error::Protocol("a message comes before its call")),
                _ => return Err(Error::Protocol("a packet has an unknown kind")),
            }
        }
    }

    /// What the caller says next. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// How the call was broken; its handler must be told.
    pub async fn recv(&mut self) -> Result<Event, Error> {
        loop {
            if self.stashed.is_some() {
                return Ok(Event::GivenUp);
            }
            let packet = self.stream.recv().await?.ok_or_else(Error::ended)?;
            // Never an earlier call: the decoder refuses ids that go back.
            if packet.stream != self.stream.id {
                self.stashed = Some(packet);
                continue;
            }
            match packet.kind {
                Kind::MESSAGE => return Ok(Event::Message(packet.data)),
                Kind::CLOSE_SEND => return Ok(Event::CloseSend),
                Kind::CLOSE | Kind::CANCEL | Kind::ERROR => return Ok(Event::GivenUp),
                Kind::INVOKE | Kind::METADATA => return Err(Error::Protocol("a call was made twice")),
                _ if packet.control => {}
                _ => return Err(Error::Protocol("a packet has an unknown kind")),
            }
        }
    }

    /// The next message of the request; none after CloseSend.
    ///
    /// # Errors
    /// [`Error::Canceled`] when the caller gave up, else how the call was broken.
    pub async fn request<M: Request>(&mut self) -> Result<Option<M>, Error> {
        match self.recv().await? {
            Event::Message(data) => {
                self.weigh::<M>(&data).await?;
                Ok(Some(M::decode(data)?))
            }
            Event::CloseSend => Ok(None),
            Event::GivenUp => Err(Error::Canceled),
        }
    }

    /// Counts the parts of a message, and reserves what it becomes.
    async fn weigh<M: Request>(&mut self, data: &Bytes) -> Result<(), Error> {
        let found = elements::count::<M>(data);
        if found > elements::LIMIT {
            return Err(Error::TooMany { found, limit: elements::LIMIT });
        }
        let cost = COPIES * data.len() + PART * found;
        if cost > UNRESERVED {
            self.reserve(cost).await;
        }
        Ok(())
    }

    /// Sends a message; nothing happens when the call is over.
    ///
    /// # Errors
    /// [`Error::TooLarge`] before anything is written; else how the byte stream failed.
    pub async fn send(&mut self, message: &impl Message) -> Result<(), Error> {
        if self.over { Ok(()) } else { self.stream.send(message).await }
    }

    /// Hands what was sent to the byte stream, without ending the call.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.stream.flush_through().await
    }

    /// Ends a unary call or a stream of answers.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn close_send(&mut self) -> Result<(), Error> {
        self.end(Kind::CLOSE_SEND).await
    }

    /// Ends a bidirectional call: the official daemon leaks the stream of an acquire that ends in any other way.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn close(&mut self) -> Result<(), Error> {
        self.end(Kind::CLOSE).await
    }

    async fn end(&mut self, kind: Kind) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        self.over = true;
        self.stream.queue(kind, b"");
        self.stream.flush_through().await
    }

    /// Ends the call with an error, which a daemon does not retry.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn fail(&mut self, status: &Status) -> Result<(), Error> {
        if self.over {
            return Ok(());
        }
        self.over = true;
        self.stream.queue_error(status);
        self.stream.flush_through().await
    }

    /// Answers a caller whose packets cannot be read any further, perhaps before its call began, and ends our
    /// direction. Without this it would see a lost connection and try again without end (wire-protocol 3.3).
    pub async fn refuse(mut self, status: &Status) {
        if self.stream.id == 0 {
            self.stream.restart(1);
            self.over = false;
        }
        // The peer may be gone; there is nobody else to tell.
        let _ = self.fail(status).await;
        let _ = self.stream.shutdown().await;
    }
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange")
            .field("call", &self.stream.id)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}
