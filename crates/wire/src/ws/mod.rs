//! A WebSocket as a byte stream, both sides: binary messages carry bytes, their borders mean nothing (wire-protocol 1.9).
//!
//! Frames are decoded in the reader's own buffer as they arrive, so that an idle socket owns no buffer and nothing is
//! gathered before it is delivered. `handshake` holds the HTTP part.

pub mod frame;
pub mod handshake;

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::frame::{Control, Decoder};
use crate::bytes::ByteStream;

/// Longest message we send, in bytes (wire-protocol 1.9 asks for at most 256 KiB).
pub const MAX_SENT_BYTES: usize = 64 << 10;

/// The peer broke the WebSocket protocol, or ended it with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A text message: this stream is binary.
    #[error("the peer sent a text message; only binary messages are understood")]
    Text,
    /// A client that does not mask, or a server that does.
    #[error("the peer's WebSocket frame has a mask where none belongs, or none where one belongs")]
    Mask,
    /// A reserved bit, so an extension that was not agreed on.
    #[error("the peer's WebSocket frame uses an extension that was not agreed on")]
    Reserved,
    /// An operation code without meaning.
    #[error("the peer's WebSocket frame has the unknown operation code {0}")]
    Opcode(u8),
    /// A continuation without a beginning, or the reverse.
    #[error("the peer's WebSocket fragments are out of order")]
    Fragments,
    /// A control frame that is fragmented, too long, or malformed.
    #[error("the peer's WebSocket control frame is malformed")]
    Control,
    /// A length with its highest bit set.
    #[error("the peer's WebSocket frame has an impossible length")]
    Length,
    /// The peer closed with a code that is not a normal end.
    #[error("the peer closed the WebSocket with code {0}")]
    Closed(u16),
}

impl Error {
    /// The close code that answers this violation.
    #[must_use]
    pub const fn close_code(self) -> u16 {
        match self {
            Self::Text => 1003,
            Self::Closed(code) => code,
            _ => 1002,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Closed(_) => io::ErrorKind::ConnectionAborted,
            _ => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Open,
    /// The peer closed normally.
    Ended,
    Failed(Error),
}

/// A WebSocket over an upgraded connection.
///
/// Reading ends when the peer closes with 1000 or 1001; any other code, and any violation, is an error. Shutting down
/// closes with 1000 and waits for the peer's answer: put a time limit around it. Reading and writing belong into one
/// task, since a read may have to write an answer.
pub struct Socket<T> {
    io: T,
    decoder: Decoder,
    /// A client masks what it sends.
    masks: Option<Masks>,
    reading: ReadState,
    out: Vec<u8>,
    written: usize,
    close_sent: bool,
    controls: Vec<Control>,
}

impl<T: ByteStream> Socket<T> {
    /// The client's end of a connection whose upgrade is complete.
    pub fn client(io: T) -> Self {
        Self::new(io, Decoder::new(false), Some(Masks::new()))
    }

    /// The server's end of a connection whose upgrade is complete.
    pub fn server(io: T) -> Self {
        Self::new(io, Decoder::new(true), None)
    }

    const fn new(io: T, decoder: Decoder, masks: Option<Masks>) -> Self {
        Self {
            io,
            decoder,
            masks,
            reading: ReadState::Open,
            out: Vec::new(),
            written: 0,
            close_sent: false,
            controls: Vec::new(),
        }
    }

    /// Closes with a code and a reason, truncated to the 123 bytes of a close frame. 1011 means that the server cannot
    /// serve the daemon.
    ///
    /// # Errors
    /// What the connection said.
    pub async fn close(mut self, code: u16, reason: &str) -> io::Result<()> {
        let cut = reason.floor_char_boundary(123);
        self.queue_close(code, &reason[..cut]);
        tokio::io::AsyncWriteExt::shutdown(&mut self).await
    }

    fn queue(&mut self, opcode: u8, payload: &[u8]) {
        let mask = self.masks.as_mut().map(Masks::next);
        frame::encode(&mut self.out, opcode, payload, mask);
    }

    fn queue_close(&mut self, code: u16, reason: &str) {
        if self.close_sent {
            return;
        }
        self.close_sent = true;
        self.queue(frame::CLOSE, &[&code.to_be_bytes()[..], reason.as_bytes()].concat());
    }

    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, &self.out[self.written..]))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.written += count;
        }
        self.written = 0;
        self.out.clear();
        if self.out.capacity() > 1024 {
            self.out = Vec::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Answers control frames and violations; the answers are written as far as possible.
    fn answer(&mut self, result: Result<(), Error>, cx: &mut Context<'_>) -> io::Result<()> {
        // One answer is enough for any number of pings, and bounds what a peer can make us queue.
        let mut pong = None;
        for control in std::mem::take(&mut self.controls) {
            match control {
                Control::Ping(payload) => pong = Some(payload),
                Control::Close(code) => {
                    let normal = matches!(code, 1000 | 1001 | 1005);
                    self.reading =
                        if normal { ReadState::Ended } else { ReadState::Failed(Error::Closed(code)) };
                    self.queue_close(if code == 1005 { 1000 } else { code }, "");
                }
            }
        }
        if let Err(error) = result {
            self.reading = ReadState::Failed(error);
            self.queue_close(error.close_code(), "");
        }
        if let Some(payload) = pong
            && !self.close_sent
            && self.out.len() < MAX_SENT_BYTES * 2
        {
            self.queue(frame::PONG, &payload);
        }
        if !self.out.is_empty()
            && let Poll::Ready(result) = self.poll_out(cx)
        {
            result?;
            if let Poll::Ready(result) = Pin::new(&mut self.io).poll_flush(cx) {
                result?;
            }
        }
        Ok(())
    }
}

impl<T: ByteStream> AsyncRead for Socket<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.reading {
                ReadState::Open => {}
                ReadState::Ended => return Poll::Ready(Ok(())),
                ReadState::Failed(error) => return Poll::Ready(Err(error.into())),
            }
            if buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            let this = &mut *self;
            let start = buf.filled().len();
            ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
            let arrived = &mut buf.filled_mut()[start..];
            if arrived.is_empty() {
                // The connection ended without a close frame; the layers above decide what that means.
                return Poll::Ready(Ok(()));
            }
            let (count, result) = match this.decoder.decode(arrived, &mut this.controls) {
                Ok(count) => (count, Ok(())),
                Err(error) => (0, Err(error)),
            };
            buf.set_filled(start + count);
            if result.is_err() || !this.controls.is_empty() {
                this.answer(result, cx)?;
            }
            if count > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: ByteStream> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.close_sent {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        // One message at a time is under way, so that a slow peer holds the writer back.
        ready!(self.poll_out(cx))?;
        let count = bytes.len().min(MAX_SENT_BYTES);
        if count > 0 {
            self.queue(frame::BINARY, &bytes[..count]);
            if let Poll::Ready(result) = self.poll_out(cx) {
                result?;
            }
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_out(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.queue_close(1000, "");
        ready!(self.as_mut().poll_flush(cx))?;
        // The peer's close frame ends the handshake; data before it is discarded.
        while self.reading == ReadState::Open {
            let mut space = [std::mem::MaybeUninit::uninit(); 4096];
            let mut rest = ReadBuf::uninit(&mut space);
            match ready!(self.as_mut().poll_read(cx, &mut rest)) {
                Ok(()) if !rest.filled().is_empty() => {}
                _ => break,
            }
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<T> fmt::Debug for Socket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket").field("reading", &self.reading).finish_non_exhaustive()
    }
}

/// The masks of a client. They keep what we send from looking like HTTP to a proxy; they protect no secret, so one
/// random seed per connection is enough.
struct Masks(u64);

impl Masks {
    fn new() -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        Self(RandomState::new().hash_one(0_u8))
    }

    /// The next mask (splitmix64).
    const fn next(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let [a, b, c, d, ..] = (mixed ^ (mixed >> 31)).to_be_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers that splitmix64 makes of zero.
    #[test]
    fn masks_are_the_numbers_of_the_generator() {
        let mut masks = Masks(0);
        let found = [(); 4].map(|()| u32::from_be_bytes(masks.next()));
        assert_eq!(found, [0xe220_a839, 0x6e78_9e6a, 0x06c4_5d18, 0xf88b_b8a8]);
    }

    #[tokio::test]
    async fn a_socket_is_shown_without_its_buffers() {
        let (near, _far) = tokio::io::duplex(1024);
        assert_eq!(format!("{:?}", Socket::server(near)), "Socket { reading: Open, .. }");
    }

    /// A connection that is idle keeps no buffer of its last long message.
    #[tokio::test]
    async fn what_was_sent_leaves_no_buffer_behind() {
        use tokio::io::AsyncWriteExt as _;
        let (near, _far) = tokio::io::duplex(1 << 20);
        let mut socket = Socket::server(near);
        for length in [100, 10_000, 1_025] {
            socket.write_all(&vec![7; length]).await.unwrap();
            socket.flush().await.unwrap();
            assert!(socket.out.is_empty() && socket.out.capacity() <= 1024, "after {length} bytes");
        }
    }
}
