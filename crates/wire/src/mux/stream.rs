//! The handle of one multiplexed stream.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::inner::Inner;

/// One stream of a [`Session`](super::Session), a [`ByteStream`](crate::bytes::ByteStream).
///
/// Shutting it down ends our direction only (a half close); dropping it does the same and discards what still
/// arrives. Neither ever resets the stream. Its errors carry an [`Error`](super::Error).
pub struct Stream {
    id: u32,
    shared: Arc<Inner>,
}

impl Stream {
    pub(super) const fn new(id: u32, shared: Arc<Inner>) -> Self {
        Self { id, shared }
    }

    /// The stream's id on the wire.
    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.shared.lock().read(self.id, cx.waker(), buf) {
            Some(result) => Poll::Ready(result.map_err(io::Error::from)),
            None => Poll::Pending,
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.shared.lock().write(self.id, cx.waker(), bytes) {
            Some(result) => Poll::Ready(result.map_err(io::Error::from)),
            None => Poll::Pending,
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.shared.lock().flush(self.id, cx.waker()) {
            Some(result) => Poll::Ready(result.map_err(io::Error::from)),
            None => Poll::Pending,
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.lock().finish(self.id, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().detach(self.id, Instant::now());
        self.shared.changed.notify_waiters();
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("id", &self.id).finish_non_exhaustive()
    }
}
