//! The server's end of calls: one byte stream carries one call after the other (wire-protocol 2.4).

use std::time::Duration;

use bytes::Bytes;
use prost::Message;

use super::error::{Error, Status};
use super::frame::{Kind, Packet};
use super::packets::PacketStream;
use crate::budget::{Account, Reservation};
use crate::bytes::BoxedStream;
use crate::elements::{self, Request};

/// Memory that a message needs while it is processed, in multiples of its size: it is decoded, converted to rows, and
/// written.
const MEMORY_FACTOR: usize = 6;
/// Additional memory for each of its elements, in bytes.
const ELEMENT_MEMORY: usize = 1024;
/// Messages that need less memory need no reservation.
const UNRESERVED: usize = 256 << 10;

/// The messages of a caller after the Invoke of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// One message, not decoded yet.
    Message(Bytes),
    /// No message follows.
    CloseSend,
    /// The caller closed or canceled the call, or began another.
    Canceled,
}

/// A byte stream of a caller, which carries one call after the other.
pub struct CallStream {
    /// Boxed, because the futures of several layers hold this struct.
    packets: Box<PacketStream<BoxedStream>>,
    /// The first packet of a later call.
    next_packet: Option<Packet>,
    /// The current call has ended on this side.
    over: bool,
}

impl CallStream {
    /// Serves a byte stream of a caller.
    #[must_use]
    pub fn new(io: BoxedStream) -> Self {
        Self { packets: Box::new(PacketStream::new(io, 0)), next_packet: None, over: true }
    }

    /// Counts what is received against an account.
    pub fn set_account(&mut self, account: &Account) {
        self.packets.reservation = Some(account.reserve());
    }

    /// Releases the reservation of what was received so far.
    pub fn release(&mut self) {
        self.packets.release();
    }

    /// Reserves `bytes` in total for what is sent.
    pub async fn reserve(&mut self, bytes: usize) {
        if let Some(reservation) = &mut self.packets.reservation {
            reservation.grow(bytes).await;
        }
    }

    /// Takes the reservation of the received message, for as long as it is processed. Further messages get their own.
    pub(crate) fn take_reservation(&mut self) -> Option<Reservation> {
        let reservation = self.packets.reservation.as_mut()?;
        let empty = reservation.sibling();
        Some(std::mem::replace(reservation, empty))
    }

    /// Sets the longest time in which a caller may read nothing of its answer; none for no limit.
    pub const fn set_write_timeout(&mut self, limit: Option<Duration>) {
        self.packets.write_timeout = limit;
    }

    /// Sets the longest silence [`recv`](Self::recv) and [`next`](Self::next) accept; none for no limit.
    pub const fn set_read_timeout(&mut self, limit: Option<Duration>) {
        self.packets.read_timeout = limit;
    }

    /// The name of the next call; none at the end of the byte stream.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn next(&mut self) -> Result<Option<String>, Error> {
        self.packets.discard();
        self.packets.release();
        loop {
            let packet = match self.next_packet.take() {
                Some(packet) => packet,
                None => match self.packets.recv().await? {
                    Some(packet) => packet,
                    None => return Ok(None),
                },
            };
            if packet.stream <= self.packets.id {
                continue;
            }
            match packet.kind {
                Kind::INVOKE => {
                    self.packets.begin_call(packet.stream);
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

    /// The next event of the current call. Cancel safe.
    ///
    /// # Errors
    /// How the call failed; its handler must be cancelled.
    pub async fn recv(&mut self) -> Result<Event, Error> {
        loop {
            if self.next_packet.is_some() {
                return Ok(Event::Canceled);
            }
            let packet = self.packets.recv().await?.ok_or_else(Error::ended)?;
            // Never an earlier call: the decoder refuses ids that go back.
            if packet.stream != self.packets.id {
                self.next_packet = Some(packet);
                continue;
            }
            match packet.kind {
                Kind::MESSAGE => return Ok(Event::Message(packet.data)),
                Kind::CLOSE_SEND => return Ok(Event::CloseSend),
                Kind::CLOSE | Kind::CANCEL | Kind::ERROR => return Ok(Event::Canceled),
                Kind::INVOKE | Kind::METADATA => return Err(Error::Protocol("a call was made twice")),
                _ if packet.control => {}
                _ => return Err(Error::Protocol("a packet has an unknown kind")),
            }
        }
    }

    /// The next message of the request; none after CloseSend.
    ///
    /// # Errors
    /// [`Error::Canceled`] when the caller canceled the call, else how the call failed.
    pub async fn request<M: Request>(&mut self) -> Result<Option<M>, Error> {
        match self.recv().await? {
            Event::Message(data) => {
                self.reserve_for::<M>(&data).await?;
                Ok(Some(M::decode(data)?))
            }
            Event::CloseSend => Ok(None),
            Event::Canceled => Err(Error::Canceled),
        }
    }

    /// Counts the elements of a message, and reserves the memory for processing it.
    async fn reserve_for<M: Request>(&mut self, data: &Bytes) -> Result<(), Error> {
        let found = elements::count::<M>(data);
        if found > elements::MAX_ELEMENTS {
            return Err(Error::TooMany { found, limit: elements::MAX_ELEMENTS });
        }
        let memory = MEMORY_FACTOR * data.len() + ELEMENT_MEMORY * found;
        if memory > UNRESERVED {
            self.reserve(memory).await;
        }
        Ok(())
    }

    /// Sends a message; nothing happens when the call is over.
    ///
    /// # Errors
    /// [`Error::TooLarge`] before anything is written; else how the byte stream failed.
    pub async fn send(&mut self, message: &impl Message) -> Result<(), Error> {
        if self.over { Ok(()) } else { self.packets.send(message).await }
    }

    /// Writes what was sent to the byte stream, without ending the call.
    ///
    /// # Errors
    /// How the byte stream failed.
    pub async fn flush(&mut self) -> Result<(), Error> {
        self.packets.flush_through().await
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
        self.packets.queue(kind, b"");
        self.packets.flush_through().await
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
        self.packets.queue_error(status);
        self.packets.flush_through().await
    }

    /// Answers a caller whose packets cannot be read any further, perhaps before its call began, and ends our
    /// direction. Without an answer the caller would see a lost connection and retry for ever (wire-protocol 3.3).
    pub async fn refuse(mut self, status: &Status) {
        if self.packets.id == 0 {
            self.packets.begin_call(1);
            self.over = false;
        }
        // The peer may be disconnected, and only the peer needs the error.
        let _ = self.fail(status).await;
        let _ = self.packets.shutdown().await;
    }
}

impl std::fmt::Debug for CallStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallStream")
            .field("call", &self.packets.id)
            .field("over", &self.over)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::super::frame;
    use super::*;
    use crate::budget::Budget;
    use crate::messages::provisionerd::{Log, UpdateJobRequest};

    /// A stream whose peer sends these packets: kind, ids and data.
    async fn receiving(packets: &[(Kind, (u64, u64), &[u8])]) -> (CallStream, DuplexStream) {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut bytes = Vec::new();
        for (kind, ids, data) in packets {
            frame::encode(&mut bytes, *kind, false, *ids, data);
        }
        far.write_all(&bytes).await.unwrap();
        (CallStream::new(Box::new(near)), far)
    }

    #[tokio::test]
    async fn each_packet_of_a_call_is_an_event_and_a_later_call_ends_it() {
        let begin = (Kind::INVOKE, (1, 1), &b"/a"[..]);
        for (kind, expected) in [
            (Kind::MESSAGE, Event::Message("data".into())),
            (Kind::CLOSE_SEND, Event::CloseSend),
            (Kind::CLOSE, Event::Canceled),
            (Kind::CANCEL, Event::Canceled),
            (Kind::ERROR, Event::Canceled),
        ] {
            let next = (Kind::INVOKE, (2, 1), &b"/b"[..]);
            let (mut stream, _far) = receiving(&[begin, (kind, (1, 2), b"data"), next]).await;
            assert_eq!(stream.next().await.unwrap().as_deref(), Some("/a"));
            assert_eq!(stream.recv().await.unwrap(), expected);
            assert_eq!(stream.recv().await.unwrap(), Event::Canceled, "another call began");
            assert_eq!(stream.recv().await.unwrap(), Event::Canceled, "and still is the next");
            assert_eq!(stream.next().await.unwrap().as_deref(), Some("/b"));
        }
    }

    /// What still comes of an earlier call is skipped, and so is what prepares a call.
    #[tokio::test]
    async fn the_next_call_is_found_behind_the_rest_of_the_last() {
        let (mut stream, mut far) = receiving(&[
            (Kind::METADATA, (1, 1), b"pairs"),
            (Kind::INVOKE, (1, 2), b"/a"),
            (Kind::MESSAGE, (1, 3), b"late"),
            (Kind::CANCEL, (1, 4), b""),
            (Kind::CLOSE, (2, 1), b""),
            (Kind::METADATA, (3, 1), b"pairs"),
            (Kind::INVOKE, (3, 2), b"/b"),
        ])
        .await;
        assert_eq!(stream.next().await.unwrap().as_deref(), Some("/a"));
        assert_eq!(stream.next().await.unwrap().as_deref(), Some("/b"));
        far.shutdown().await.unwrap();
        assert_eq!(stream.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn processing_a_message_reserves_memory_for_its_bytes_and_its_elements() {
        let budget = Budget::new(100 << 20);
        // Log lines that make a request of this size.
        let request = |logs: usize, size: usize| {
            let mut request = UpdateJobRequest { logs: vec![Log::default(); logs], ..Default::default() };
            request.readme = vec![7; size - request.encoded_len() - 4].into();
            assert_eq!(request.encoded_len(), size);
            Bytes::from(request.encode_to_vec())
        };
        // 64 elements and 32 KiB need exactly what needs no reservation.
        for (data, expected) in [
            (request(64, 32 << 10), 0),
            (request(64, (32 << 10) + 1), UNRESERVED + MEMORY_FACTOR),
            (request(65, 32 << 10), UNRESERVED + ELEMENT_MEMORY),
            (request(10, 1 << 20), (6 << 20) + (10 << 10)),
        ] {
            let (mut stream, _far) = receiving(&[]).await;
            stream.set_account(&budget.account(1));
            stream.reserve_for::<UpdateJobRequest>(&data).await.unwrap();
            assert_eq!(budget.used(), expected, "{} bytes", data.len());
            stream.release();
            assert_eq!(budget.used(), 0);
        }
    }

    #[tokio::test]
    async fn a_request_at_work_keeps_its_reservation_and_later_messages_get_their_own() {
        let budget = Budget::new(100 << 20);
        let request = UpdateJobRequest { readme: vec![7; 100_000].into(), ..Default::default() };
        let data = request.encode_to_vec();
        let invoke = (Kind::INVOKE, (1, 1), &b"/a"[..]);
        let (mut stream, _far) =
            receiving(&[invoke, (Kind::MESSAGE, (1, 2), &data), (Kind::MESSAGE, (1, 3), &data)]).await;
        assert!(stream.take_reservation().is_none(), "nothing is counted");
        stream.set_account(&budget.account(1));
        stream.next().await.unwrap();
        stream.request::<UpdateJobRequest>().await.unwrap();
        let one = budget.used();
        assert_eq!(one, MEMORY_FACTOR * data.len());
        let at_work = stream.take_reservation();
        stream.request::<UpdateJobRequest>().await.unwrap();
        assert_eq!(budget.used(), 2 * one);
        stream.release();
        assert_eq!(budget.used(), one);
        drop(at_work);
        assert_eq!(budget.used(), 0);
    }

    /// A caller that never named a call sees the error as the answer to its first.
    #[tokio::test]
    async fn a_refusal_answers_the_call_that_is_under_way() {
        let invokes: [(Kind, (u64, u64), &[u8]); 2] =
            [(Kind::INVOKE, (1, 1), b"/a"), (Kind::INVOKE, (2, 1), b"/b")];
        for (calls, answered) in [(0, 1), (1, 1), (2, 2)] {
            let (mut stream, mut far) = receiving(&invokes[..calls]).await;
            for _ in 0..calls {
                stream.next().await.unwrap();
            }
            stream.refuse(&Status::new("no")).await;
            let mut answer = Vec::new();
            far.read_to_end(&mut answer).await.unwrap();
            let (packets, end) = frame::parse(&answer);
            let [packet] = &packets[..] else { panic!("{packets:?}") };
            assert_eq!((packet.kind, packet.stream, end), (Kind::ERROR, answered, Ok(())));
            assert_eq!(Status::decode(&packet.data), Status::new("no"));
        }
    }

    #[tokio::test]
    async fn nothing_is_sent_for_a_call_that_has_ended() {
        let (mut stream, mut far) = receiving(&[(Kind::INVOKE, (1, 1), b"/a")]).await;
        stream.next().await.unwrap();
        assert_eq!(format!("{stream:?}"), "CallStream { call: 1, over: false, .. }");
        stream.close_send().await.unwrap();
        assert_eq!(format!("{stream:?}"), "CallStream { call: 1, over: true, .. }");
        stream.send(&UpdateJobRequest::default()).await.unwrap();
        stream.fail(&Status::new("late")).await.unwrap();
        stream.close().await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = [0; 64];
        let count = far.read(&mut answer).await.unwrap();
        let kinds: Vec<_> = frame::parse(&answer[..count]).0.iter().map(|packet| packet.kind).collect();
        assert_eq!(kinds, [Kind::CLOSE_SEND]);
        assert!(far.read(&mut answer).now_or_never().is_none());
    }
}
