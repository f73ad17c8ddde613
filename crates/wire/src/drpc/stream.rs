//! Packets over a byte stream; both ends of a call are built on it.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;
use prost::Message;
use tokio::io::ReadBuf;
use tokio::time::Instant;

use super::MESSAGE;
use super::error::{Error, Status};
use super::frame::{self, Decoder, Kind, Packet};
use crate::budget::Reservation;
use crate::bytes::ByteStream;

/// Bytes read at once, on the stack: a call that waits owns no buffer.
const READ: usize = 16 << 10;
/// Input that may pile up while a writer is held up.
const INPUT: usize = 64 << 10;
/// Packets up to this size are gathered into one write.
const GATHER: usize = 4096;
/// Bytes of a packet that need no reservation.
const UNRESERVED: usize = 16 << 10;
/// Reservations grow by so many bytes.
const STEP: usize = 64 << 10;
/// A packet that arrives more slowly than this, in bytes a second, is given up.
const SLOWEST: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct Stream<T> {
    io: T,
    decoder: Decoder,
    input: BytesMut,
    output: Vec<u8>,
    /// The call.
    pub(super) id: u64,
    next_message: u64,
    /// What packets and what is made of them take of a budget; none where nobody counts.
    pub(super) reservation: Option<Reservation>,
    /// When the current packet began.
    packet_since: Option<Instant>,
    /// Longest silence while reading.
    pub(super) patience: Option<Duration>,
    /// Longest time in which the peer takes nothing of what is written.
    pub(super) write_patience: Option<Duration>,
}

impl<T: ByteStream> Stream<T> {
    pub(super) fn new(io: T, id: u64) -> Self {
        Self {
            io,
            decoder: Decoder::default(),
            input: BytesMut::new(),
            output: Vec::new(),
            id,
            next_message: 1,
            reservation: None,
            packet_since: None,
            patience: None,
            write_patience: None,
        }
    }

    /// Goes on with another call on the same byte stream.
    pub(super) const fn restart(&mut self, id: u64) {
        self.id = id;
        self.next_message = 1;
    }

    /// The next packet; none at the end of the byte stream. Nothing is lost when the future is dropped.
    pub(super) async fn recv(&mut self) -> Result<Option<Packet>, Error> {
        loop {
            if let Some(packet) = self.decoder.decode(&mut self.input)? {
                self.packet_since = None;
                return Ok(Some(packet));
            }
            self.input = BytesMut::new();
            self.reserve().await;
            let patience = self.patience_left()?;
            let read = poll_fn(|cx| poll_read(&mut self.io, &mut self.input, cx).map_err(Error::transport));
            if within(patience, read).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits until there is room for what is gathered, before more is read.
    async fn reserve(&mut self) {
        let gathered = self.decoder.gathered();
        if let Some(reservation) = &mut self.reservation
            && gathered > UNRESERVED
        {
            let asked = Instant::now();
            // A buffer that grows has up to twice the size of its content.
            reservation.grow((2 * gathered).next_multiple_of(STEP)).await;
            // The peer is not slow while it is us who wait.
            self.packet_since = self.packet_since.map(|since| since + asked.elapsed());
        }
    }

    /// How long the next bytes may take: a packet has to arrive at a rate, too.
    fn patience_left(&mut self) -> Result<Option<Duration>, Error> {
        let Some(patience) = self.patience.filter(|_| !self.decoder.between_packets()) else {
            return Ok(self.patience);
        };
        let now = Instant::now();
        let since = *self.packet_since.get_or_insert(now);
        let seconds = u64::try_from(self.decoder.gathered() / SLOWEST).unwrap_or(u64::MAX);
        let end = since + patience + Duration::from_secs(seconds);
        let left = end.checked_duration_since(now).filter(|left| !left.is_zero()).ok_or(Error::Stalled)?;
        Ok(Some(left.min(patience)))
    }

    /// What was received so far is of no use any more.
    pub(super) fn release(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink(0);
        }
    }

    /// Throws away what still arrives of the current call.
    pub(super) fn discard(&mut self) {
        self.decoder.discard(self.id);
    }

    /// Takes a packet into the next write.
    pub(super) fn queue(&mut self, kind: Kind, data: &[u8]) {
        let ids = self.next_ids();
        frame::encode(&mut self.output, kind, false, ids, data);
    }

    fn next_ids(&mut self) -> (u64, u64) {
        let ids = (self.id, self.next_message);
        self.next_message += 1;
        ids
    }

    /// Takes a message into the next write, or writes it when it is long.
    pub(super) async fn send(&mut self, message: &impl Message) -> Result<(), Error> {
        let size = message.encoded_len();
        if size > MESSAGE {
            return Err(Error::TooLarge { size, limit: MESSAGE });
        }
        let data = message.encode_to_vec();
        if size <= GATHER {
            self.queue(Kind::MESSAGE, &data);
            return Ok(());
        }
        let ids = self.next_ids();
        for (header, part) in frame::split(Kind::MESSAGE, false, ids, &data) {
            self.output.extend_from_slice(&header);
            self.flush().await?;
            self.write(part).await?;
        }
        Ok(())
    }

    pub(super) fn queue_error(&mut self, status: &Status) {
        let mut data = status.encode();
        data.truncate(MESSAGE);
        self.queue(Kind::ERROR, &data);
    }

    /// Hands what is queued to the byte stream.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        let output = std::mem::take(&mut self.output);
        self.write(&output).await
    }

    /// Waits until the byte stream has passed everything on.
    pub(super) async fn flush_through(&mut self) -> Result<(), Error> {
        self.flush().await?;
        let flushed = poll_fn(|cx| Pin::new(&mut self.io).poll_flush(cx).map_err(Error::transport));
        within(self.write_patience, flushed).await
    }

    /// Ends our direction.
    pub(super) async fn shutdown(&mut self) -> Result<(), Error> {
        self.flush().await?;
        poll_fn(|cx| Pin::new(&mut self.io).poll_shutdown(cx)).await.map_err(Error::transport)
    }

    /// Writes, and while held up watches for the end of the other direction: a peer that has gone grants no credit.
    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let (io, input) = (&mut self.io, &mut self.input);
        while !bytes.is_empty() {
            let written = poll_fn(|cx| {
                if let Poll::Ready(result) = Pin::new(&mut *io).poll_write(cx, bytes) {
                    return Poll::Ready(result.map_err(Error::transport));
                }
                while input.len() < INPUT {
                    match poll_read(io, input, cx) {
                        Poll::Ready(Ok(0)) => return Poll::Ready(Err(Error::ended())),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::transport(error))),
                        Poll::Pending => break,
                    }
                }
                Poll::Pending
            });
            let count = within(self.write_patience, written).await?;
            if count == 0 {
                return Err(Error::Lost(io::ErrorKind::WriteZero.into()));
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// Waits no longer than `patience`.
async fn within<T>(
    patience: Option<Duration>,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match patience {
        None => step.await,
        Some(patience) => tokio::time::timeout(patience, step).await.unwrap_or(Err(Error::Stalled)),
    }
}

fn poll_read<T: ByteStream>(
    io: &mut T,
    input: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [MaybeUninit::uninit(); READ];
    let mut buffer = ReadBuf::uninit(&mut space);
    Pin::new(io).poll_read(cx, &mut buffer).map_ok(|()| {
        input.extend_from_slice(buffer.filled());
        buffer.filled().len()
    })
}
