//! Streams that fail after a number of bytes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What happens after the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends, in both directions.
    Cut,
    /// The connection stays open, but transfers nothing any more.
    Stall,
}

/// A stream that works for a number of written bytes.
#[derive(Debug)]
pub struct FaultyStream<T> {
    inner: Option<T>,
    remaining: usize,
    fault: Fault,
}

impl<T> FaultyStream<T> {
    /// Lets `inner` fail after `bytes` written bytes.
    pub const fn new(inner: T, bytes: usize, fault: Fault) -> Self {
        Self { inner: Some(inner), remaining: bytes, fault }
    }

    fn has_failed(&mut self) -> bool {
        if self.remaining == 0 && self.fault == Fault::Cut {
            // The other side notices that it was dropped.
            self.inner = None;
        }
        self.remaining == 0
    }

    fn fail<R>(&self) -> Poll<io::Result<R>> {
        match self.fault {
            Fault::Cut => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Fault::Stall => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for FaultyStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.has_failed() {
            return self.fail();
        }
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_read(cx, buf),
            None => self.fail(),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FaultyStream<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.has_failed() {
            return self.fail();
        }
        let allowed = data.len().min(self.remaining);
        let Some(inner) = &mut self.inner else { return self.fail() };
        let written = Pin::new(inner).poll_write(cx, &data[..allowed]);
        if let Poll::Ready(Ok(count)) = &written {
            self.remaining -= count;
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_flush(cx),
            None => self.fail(),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}
