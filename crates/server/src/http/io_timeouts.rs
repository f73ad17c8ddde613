//! Time limits for peers that send or read too slowly: on request bodies, and on writes to a connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::activity::{Activity, LEAST_BYTES};

/// The peer sent fewer bytes than the limit.
#[derive(Debug, thiserror::Error)]
#[error("less than {LEAST_BYTES} bytes arrived within {0:?}")]
pub struct PeerTooSlow(pub Duration);

/// Measures how long this server waits for a peer. Time in which the peer waits for this server does not count.
struct StallTimer {
    limit: Duration,
    left: Duration,
    /// Bytes since `left` was reset.
    bytes: usize,
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl StallTimer {
    const fn new(limit: Duration) -> Self {
        Self { limit, left: limit, bytes: 0, waiting: None }
    }

    /// The peer sent or read bytes.
    fn moved(&mut self, bytes: usize) {
        if let Some((since, _)) = self.waiting.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes >= LEAST_BYTES {
            self.bytes = 0;
            self.left = self.limit;
        }
    }

    /// Ready when the time limit has passed.
    fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let left = self.left;
        let wait = || {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + left)))
        };
        self.waiting.get_or_insert_with(wait).1.as_mut().poll(cx)
    }
}

/// A request body that fails when it arrives too slowly.
pub struct TimedBody {
    body: Body,
    timer: StallTimer,
}

impl TimedBody {
    /// Watches `body`.
    pub fn body(body: Body, limit: Duration) -> Body {
        if body.is_end_stream() { body } else { Body::new(Self { body, timer: StallTimer::new(limit) }) }
    }
}

impl HttpBody for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
                let bytes = data.map_or(0, Bytes::len);
                self.timer.moved(bytes);
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(self.timer.poll_over(cx));
                Poll::Ready(Some(Err(axum::Error::new(PeerTooSlow(self.timer.limit)))))
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

/// A connection that fails when the peer reads too slowly, and that reports arriving bytes to [`Activity`].
pub struct TimedStream<S> {
    stream: S,
    timer: StallTimer,
    activity: Arc<Activity>,
}

impl<S> TimedStream<S> {
    /// Watches `stream`.
    pub const fn new(stream: S, limit: Duration, activity: Arc<Activity>) -> Self {
        Self { stream, timer: StallTimer::new(limit), activity }
    }

    /// Counts the bytes that the peer read, or checks the time limit.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        progress: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &progress {
            self.timer.moved(done.as_ref().map_or(0, bytes));
            return progress;
        }
        ready!(self.timer.poll_over(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, progress, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let progress = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, progress, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, progress, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let progress = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, progress, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_body_ends_in_an_error() {
        let silent = Body::from_stream(futures_util::stream::pending::<Result<Bytes, io::Error>>());
        let started = Instant::now();
        assert!(TimedBody::body(silent, Duration::from_secs(60)).collect().await.is_err());
        assert_eq!(started.elapsed().as_secs(), 60);
    }

    /// A body of so many pieces, and how long each takes.
    fn pieces(count: usize, bytes: usize, each: Duration) -> Body {
        Body::from_stream(futures_util::stream::unfold(0, move |n| async move {
            tokio::time::sleep(each).await;
            (n < count).then(|| (Ok::<_, io::Error>(Bytes::from(vec![b'x'; bytes])), n + 1))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_but_steady_body_is_read() {
        let slow = pieces(100, LEAST_BYTES, Duration::from_secs(50));
        let body = TimedBody::body(slow, Duration::from_secs(60)).collect().await.unwrap();
        assert_eq!(body.to_bytes().len(), 100 * LEAST_BYTES);
        let short = TimedBody::body(pieces(20, 1, Duration::from_secs(2)), Duration::from_secs(60));
        assert_eq!(short.collect().await.unwrap().to_bytes().len(), 20);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_trickles_ends_in_an_error() {
        let started = Instant::now();
        let trickle = pieces(100_000, 1, Duration::from_secs(2));
        assert!(TimedBody::body(trickle, Duration::from_secs(60)).collect().await.is_err());
        assert_eq!(started.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_reads_a_body_does_not_count() {
        let mut body = TimedBody::body(pieces(10, 1, Duration::from_secs(5)), Duration::from_secs(60));
        for _ in 0..10 {
            body.frame().await.unwrap().unwrap();
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        assert!(body.frame().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_does_not_read_is_dropped() {
        let (near, _far) = tokio::io::duplex(16);
        let mut near = TimedStream::new(near, Duration::from_secs(60), Activity::new());
        assert_eq!(near.write_all(&[0; 64]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_a_trickle_is_dropped() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut near = TimedStream::new(near, Duration::from_secs(60), Activity::new());
        let trickle = async {
            let mut byte = [0];
            while far.read_exact(&mut byte).await.is_ok() {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        };
        let block = [0; 4096];
        let written = tokio::select! { written = near.write_all(&block) => written, () = trickle => Ok(()) };
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
