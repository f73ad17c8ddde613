//! Streams that break: cut after a number of bytes, or silent from then on.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What happens once the budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The connection is gone, in both directions.
    Cut,
    /// Nothing comes and nothing is taken any more, but nobody says so.
    Stall,
}

/// A stream that works for a number of written bytes.
#[derive(Debug)]
pub struct Faulty<T> {
    inner: Option<T>,
    left: usize,
    fault: Fault,
}

impl<T> Faulty<T> {
    /// Breaks `inner` after `bytes` written bytes.
    pub const fn new(inner: T, bytes: usize, fault: Fault) -> Self {
        Self { inner: Some(inner), left: bytes, fault }
    }

    fn broken(&mut self) -> bool {
        if self.left == 0 && self.fault == Fault::Cut {
            // Dropping it is what the other side notices.
            self.inner = None;
        }
        self.left == 0
    }

    fn fail<R>(&self) -> Poll<io::Result<R>> {
        match self.fault {
            Fault::Cut => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Fault::Stall => Poll::Pending,
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Faulty<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.broken() {
            return self.fail();
        }
        match &mut self.inner {
            Some(inner) => Pin::new(inner).poll_read(cx, buf),
            None => self.fail(),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Faulty<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.broken() {
            return self.fail();
        }
        let allowed = data.len().min(self.left);
        let Some(inner) = &mut self.inner else { return self.fail() };
        let written = Pin::new(inner).poll_write(cx, &data[..allowed]);
        if let Poll::Ready(Ok(count)) = &written {
            self.left -= count;
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
