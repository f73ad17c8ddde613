//! Packets over a byte stream. Both ends of a call use it.

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

use super::MAX_MESSAGE_SIZE;
use super::error::{Error, Status};
use super::frame::{self, Decoder, Kind, Packet};
use crate::budget::Reservation;
use crate::bytes::ByteStream;

/// Bytes read at once, on the stack, so that a waiting call owns no buffer.
const READ_SIZE: usize = 16 << 10;
/// Input that is buffered while a write waits.
const MAX_INPUT: usize = 64 << 10;
/// Messages up to this size are combined into one write.
const MAX_COMBINED: usize = 4096;
/// Bytes of a packet that need no reservation.
const UNRESERVED: usize = 16 << 10;
/// Reservations grow in steps of this many bytes.
const RESERVATION_STEP: usize = 64 << 10;
/// Lowest rate of a packet, in bytes a second; a slower one ends the call.
const MIN_RATE: usize = 8 << 10;

#[derive(Debug)]
pub(super) struct PacketStream<T> {
    io: T,
    decoder: Decoder,
    input: BytesMut,
    output: Vec<u8>,
    /// The id of the call.
    pub(super) id: u64,
    next_message: u64,
    /// Budget that the packets and their decoded messages use; none without accounting.
    pub(super) reservation: Option<Reservation>,
    /// When the current packet began.
    packet_since: Option<Instant>,
    /// Longest silence while reading.
    pub(super) read_timeout: Option<Duration>,
    /// Longest time in which the peer reads nothing of what is written.
    pub(super) write_timeout: Option<Duration>,
}

impl<T: ByteStream> PacketStream<T> {
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
            read_timeout: None,
            write_timeout: None,
        }
    }

    /// Begins the next call on the same byte stream.
    pub(super) const fn begin_call(&mut self, id: u64) {
        self.id = id;
        self.next_message = 1;
    }

    /// The next packet; none at the end of the byte stream. Cancel safe.
    pub(super) async fn recv(&mut self) -> Result<Option<Packet>, Error> {
        loop {
            if let Some(packet) = self.decoder.decode(&mut self.input)? {
                self.packet_since = None;
                return Ok(Some(packet));
            }
            self.input = BytesMut::new();
            self.reserve().await;
            let timeout = self.remaining_read_timeout()?;
            let read = poll_fn(|cx| poll_read(&mut self.io, &mut self.input, cx).map_err(Error::transport));
            if within(timeout, read).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits until the budget has room for the buffered bytes, before more are read.
    async fn reserve(&mut self) {
        let buffered = self.decoder.buffered();
        if let Some(reservation) = &mut self.reservation
            && buffered > UNRESERVED
        {
            let start = Instant::now();
            // A buffer that grows has up to twice the size of its content.
            reservation.grow((2 * buffered).next_multiple_of(RESERVATION_STEP)).await;
            // Our own wait does not count as slowness of the peer.
            self.packet_since = self.packet_since.map(|since| since + start.elapsed());
        }
    }

    /// How long the next bytes may take: a packet has to arrive at a minimum rate, too.
    fn remaining_read_timeout(&mut self) -> Result<Option<Duration>, Error> {
        let Some(timeout) = self.read_timeout.filter(|_| !self.decoder.between_packets()) else {
            return Ok(self.read_timeout);
        };
        let now = Instant::now();
        let since = *self.packet_since.get_or_insert(now);
        let seconds = u64::try_from(self.decoder.buffered() / MIN_RATE).unwrap_or(u64::MAX);
        let end = since + timeout + Duration::from_secs(seconds);
        let left = end.checked_duration_since(now).filter(|left| !left.is_zero()).ok_or(Error::Stalled)?;
        Ok(Some(left.min(timeout)))
    }

    /// Releases the reservation of what was received so far.
    pub(super) fn release(&mut self) {
        if let Some(reservation) = &mut self.reservation {
            reservation.shrink(0);
        }
    }

    /// Discards what still arrives of the current call.
    pub(super) fn discard(&mut self) {
        self.decoder.discard(self.id);
    }

    /// Adds a packet to the next write.
    pub(super) fn queue(&mut self, kind: Kind, data: &[u8]) {
        let ids = self.next_ids();
        frame::encode(&mut self.output, kind, false, ids, data);
    }

    fn next_ids(&mut self) -> (u64, u64) {
        let ids = (self.id, self.next_message);
        self.next_message += 1;
        ids
    }

    /// Adds a short message to the next write; writes a long one at once.
    pub(super) async fn send(&mut self, message: &impl Message) -> Result<(), Error> {
        let size = message.encoded_len();
        if size > MAX_MESSAGE_SIZE {
            return Err(Error::TooLarge { size, limit: MAX_MESSAGE_SIZE });
        }
        let data = message.encode_to_vec();
        if size <= MAX_COMBINED {
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
        data.truncate(MAX_MESSAGE_SIZE);
        self.queue(Kind::ERROR, &data);
    }

    /// Writes what is queued to the byte stream.
    pub(super) async fn flush(&mut self) -> Result<(), Error> {
        let output = std::mem::take(&mut self.output);
        self.write(&output).await
    }

    /// Waits until the byte stream has passed everything on.
    pub(super) async fn flush_through(&mut self) -> Result<(), Error> {
        self.flush().await?;
        let flushed = poll_fn(|cx| Pin::new(&mut self.io).poll_flush(cx).map_err(Error::transport));
        within(self.write_timeout, flushed).await
    }

    /// Ends our direction.
    pub(super) async fn shutdown(&mut self) -> Result<(), Error> {
        self.flush().await?;
        poll_fn(|cx| Pin::new(&mut self.io).poll_shutdown(cx)).await.map_err(Error::transport)
    }

    /// Writes, and while it waits watches for the end of the other direction: a disconnected peer grants no credit.
    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let (io, input) = (&mut self.io, &mut self.input);
        while !bytes.is_empty() {
            let written = poll_fn(|cx| {
                if let Poll::Ready(result) = Pin::new(&mut *io).poll_write(cx, bytes) {
                    return Poll::Ready(result.map_err(Error::transport));
                }
                while input.len() < MAX_INPUT {
                    match poll_read(io, input, cx) {
                        Poll::Ready(Ok(0)) => return Poll::Ready(Err(Error::ended())),
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(Error::transport(error))),
                        Poll::Pending => break,
                    }
                }
                Poll::Pending
            });
            let count = within(self.write_timeout, written).await?;
            if count == 0 {
                return Err(Error::Lost(io::ErrorKind::WriteZero.into()));
            }
            bytes = &bytes[count..];
        }
        Ok(())
    }
}

/// Runs a step with a time limit, if there is one.
async fn within<T>(
    limit: Option<Duration>,
    step: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    match limit {
        None => step.await,
        Some(limit) => tokio::time::timeout(limit, step).await.unwrap_or(Err(Error::Stalled)),
    }
}

fn poll_read<T: ByteStream>(
    io: &mut T,
    input: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let mut space = [MaybeUninit::uninit(); READ_SIZE];
    let mut buffer = ReadBuf::uninit(&mut space);
    Pin::new(io).poll_read(cx, &mut buffer).map_ok(|()| {
        input.extend_from_slice(buffer.filled());
        buffer.filled().len()
    })
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::budget::Budget;
    use crate::messages::provisionerd::UpdateJobRequest;

    #[tokio::test]
    async fn what_is_buffered_of_a_large_packet_is_reserved() {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, Kind::MESSAGE, false, (1, 1), &vec![7; 300 << 10]);
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let budget = Budget::new(10 << 20);
        let mut packets = PacketStream::new(near, 1);
        packets.reservation = Some(budget.account(0).reserve());

        let header = bytes.iter().position(|byte| *byte == 7).unwrap();
        let (small, rest) = bytes.split_at(header + UNRESERVED);
        far.write_all(small).await.unwrap();
        assert!(packets.recv().now_or_never().is_none());
        assert_eq!(packets.decoder.buffered(), UNRESERVED);
        assert_eq!(budget.used(), 0, "a small packet costs nothing");

        let (large, rest) = rest.split_at(200 << 10);
        far.write_all(large).await.unwrap();
        assert!(packets.recv().now_or_never().is_none());
        let buffered = packets.decoder.buffered();
        assert!(buffered > 100 << 10, "{buffered}");
        let twice = 2 * (buffered - 2 * READ_SIZE)..=2 * buffered + RESERVATION_STEP;
        assert!(twice.contains(&budget.used()), "{} for {buffered}", budget.used());

        far.write_all(rest).await.unwrap();
        let packet = packets.recv().await.unwrap().unwrap();
        assert_eq!(packet.data.len(), 300 << 10);
        assert!(budget.used() >= packet.data.len(), "{}", budget.used());
        packets.release();
        assert_eq!(budget.used(), 0);

        // What still comes of a call that is over takes no memory.
        packets.discard();
        let mut late = Vec::new();
        frame::encode(&mut late, Kind::MESSAGE, false, (1, 2), &vec![7; 300 << 10]);
        far.write_all(&late[..200 << 10]).await.unwrap();
        assert!(packets.recv().now_or_never().is_none());
        assert_eq!((packets.decoder.buffered(), budget.used()), (0, 0));
    }

    /// A connection that is as slow as it may be, for longer than the longest silence.
    #[tokio::test(start_paused = true)]
    async fn a_packet_at_the_lowest_rate_arrives_and_a_slower_one_does_not() {
        for (rate, arrives) in [(MIN_RATE, true), (MIN_RATE / 4, false)] {
            let mut bytes = Vec::new();
            frame::encode(&mut bytes, Kind::MESSAGE, false, (1, 1), &vec![7; 100 * MIN_RATE]);
            let (near, mut far) = tokio::io::duplex(1 << 20);
            let mut packets = PacketStream::new(near, 1);
            packets.read_timeout = Some(Duration::from_secs(10));
            let sending = async {
                for part in bytes.chunks(rate) {
                    far.write_all(part).await.unwrap();
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            };
            let (received, ()) = tokio::join!(packets.recv(), sending);
            match received {
                Ok(packet) => assert!(arrives && packet.is_some()),
                Err(error) => assert!(!arrives && matches!(error, Error::Stalled), "{error}"),
            }
        }
    }

    /// A peer that sends without reading is read only as far as it has to be to notice its end.
    #[tokio::test]
    async fn input_that_is_kept_during_a_write_is_bounded() {
        let (near, mut far) = tokio::io::duplex(4 * MAX_INPUT);
        far.write_all(&vec![7; 2 * MAX_INPUT]).await.unwrap();
        let mut packets = PacketStream::new(near, 1);
        packets.output = vec![1; 5 * MAX_INPUT];
        assert!(packets.flush().now_or_never().is_none());
        assert_eq!(packets.input.len(), MAX_INPUT);
    }

    #[tokio::test]
    async fn short_messages_leave_together_and_a_long_one_at_once() {
        let message = |size: usize| UpdateJobRequest { readme: vec![7; size].into(), ..Default::default() };
        for (size, waits) in [(0, true), (MAX_COMBINED / 2, true), (2 * MAX_COMBINED, false)] {
            let (near, mut far) = tokio::io::duplex(1 << 20);
            let mut packets = PacketStream::new(near, 1);
            packets.queue(Kind::INVOKE, b"/x");
            packets.send(&message(size)).await.unwrap();
            let mut received = vec![0; 1 << 20];
            assert_eq!(far.read(&mut received).now_or_never().is_none(), waits, "{size}");
            packets.queue(Kind::CLOSE_SEND, b"");
            packets.flush().await.unwrap();
            if waits {
                let count = far.read(&mut received).await.unwrap();
                assert_eq!(frame::parse(&received[..count]).0.len(), 3, "{size}");
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_is_not_slow_while_we_wait_for_memory() {
        let limit = Duration::from_secs(10);
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, Kind::MESSAGE, false, (1, 1), &vec![7; 100 << 10]);
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let budget = Budget::new(4 * RESERVATION_STEP);
        // The oldest one that waits may exceed the budget: here it is not ours.
        let mut others = [1, 2].map(|holder| budget.account(holder).reserve());
        others[0].grow(4 * RESERVATION_STEP).await;
        let [held, waiting] = &mut others;
        waiting.grow(RESERVATION_STEP).await;
        let mut packets = PacketStream::new(near, 1);
        packets.reservation = Some(budget.account(0).reserve());
        packets.read_timeout = Some(limit);

        let (begin, rest) = bytes.split_at(50 << 10);
        far.write_all(begin).await.unwrap();
        let mut receiving = Box::pin(packets.recv());
        assert!(receiving.as_mut().now_or_never().is_none());
        tokio::time::advance(100 * limit).await;
        held.shrink(0);
        waiting.shrink(0);
        assert!(receiving.as_mut().now_or_never().is_none());
        tokio::time::advance(limit / 2).await;
        far.write_all(rest).await.unwrap();
        assert!(receiving.await.unwrap().is_some());
    }
}
