//! Time limits on silence: request bodies that stop arriving and peers that stop reading.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// The peer sent nothing for too long.
#[derive(Debug, thiserror::Error)]
#[error("nothing arrived for {0:?}")]
pub struct Stalled(pub Duration);

/// A timer that runs only while something is waited for.
struct Patience {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    const fn new(limit: Duration) -> Self {
        Self { limit, sleep: None }
    }

    fn relax(&mut self) {
        self.sleep = None;
    }

    /// Ready when the peer has been waited for too long.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit;
        self.sleep
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + limit)))
            .as_mut()
            .poll(cx)
    }
}

/// A request body that fails when nothing arrives for too long.
pub struct Guarded {
    body: Body,
    patience: Patience,
}

impl Guarded {
    /// Watches `body`.
    pub fn body(body: Body, limit: Duration) -> Body {
        if body.is_end_stream() { body } else { Body::new(Self { body, patience: Patience::new(limit) }) }
    }
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.patience.relax();
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(self.patience.poll_over(cx));
                Poll::Ready(Some(Err(axum::Error::new(Stalled(self.patience.limit)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection that fails when the peer does not read for too long.
pub struct Unclogged<S> {
    stream: S,
    patience: Patience,
}

impl<S> Unclogged<S> {
    /// Watches `stream`.
    pub const fn new(stream: S, limit: Duration) -> Self {
        Self { stream, patience: Patience::new(limit) }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if progress.is_ready() {
            self.patience.relax();
            return progress;
        }
        ready!(self.patience.poll_over(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Unclogged<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unclogged<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, progress)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, progress)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_ends_in_an_error() {
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, io::Error>>());
        let started = Instant::now();
        assert!(Guarded::body(silent, Duration::from_secs(60)).collect().await.is_err());
        assert_eq!(started.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_body_is_read() {
        let slow = futures_util::stream::unfold(0, |n| async move {
            tokio::time::sleep(Duration::from_secs(50)).await;
            (n < 5).then(|| (Ok::<_, io::Error>(Bytes::from_static(b"x")), n + 1))
        });
        let body = Guarded::body(Body::from_stream(slow), Duration::from_secs(60)).collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_dropped() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = Unclogged::new(near, Duration::from_secs(60));
        assert_eq!(near.write_all(&[0; 64]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
