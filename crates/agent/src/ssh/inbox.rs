//! Data that a client has sent on a channel and that is not read yet, and streams on top of it.
//!
//! The SSH library gives a client new credit when data arrives, not when it is read; the only way to slow the client down is to make the
//! whole connection wait. A waiting connection sends nothing either, so a program that does not read until its output is taken would
//! wait for ever. So the connection waits only while none of its output waits.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use parking_lot::Mutex;
use russh::server::{Handle, Msg};
use russh::{Channel, ChannelId, ChannelWriteHalf};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// Bytes of one channel above which the connection waits for their reader.
const PAUSE_ABOVE_BYTES: usize = 2 << 20;
/// Bytes of one channel above which it is closed.
const CLOSE_ABOVE_BYTES: usize = 256 << 20;
/// After this time a waiting connection goes on if output waits.
const PAUSE_STEP: Duration = Duration::from_millis(20);

/// The channels of one connection. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Inboxes {
    channels: Arc<Mutex<HashMap<ChannelId, Arc<Inbox>>>>,
    /// Writers that wait for the connection or for the client.
    waiting_writers: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Inbox {
    state: Mutex<State>,
    room: Notify,
}

#[derive(Default)]
struct State {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    /// The client sends nothing more.
    has_ended: bool,
    is_closed: bool,
    has_reader: bool,
    /// The reader was dropped.
    is_abandoned: bool,
    wakers: Vec<Waker>,
}

impl State {
    fn register(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
    }

    fn wake(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }
}

/// A client sent more than is kept for a program that does not read.
#[derive(Debug)]
pub(super) struct TooMuch;

impl Inboxes {
    fn inbox(&self, id: ChannelId) -> Arc<Inbox> {
        Arc::clone(self.channels.lock().entry(id).or_default())
    }

    /// Keeps what a client sent. Waits while too much is there already.
    pub(super) async fn push(&self, id: ChannelId, data: &[u8]) -> Result<(), TooMuch> {
        let inbox = self.inbox(id);
        let mut has_waited = false;
        loop {
            let room = inbox.room.notified();
            {
                let mut state = inbox.state.lock();
                if state.is_abandoned || state.is_closed {
                    return Ok(());
                }
                let output_waits = has_waited && self.waiting_writers.load(Ordering::SeqCst) > 0;
                if state.bytes < PAUSE_ABOVE_BYTES || output_waits {
                    if state.bytes + data.len() > CLOSE_ABOVE_BYTES {
                        return Err(TooMuch);
                    }
                    state.pieces.push_back(Bytes::copy_from_slice(data));
                    state.bytes += data.len();
                    state.wake();
                    return Ok(());
                }
            }
            tokio::select! {
                () = room => {}
                () = tokio::time::sleep(PAUSE_STEP) => has_waited = true,
            }
        }
    }

    /// The client ended its direction.
    pub(super) fn end(&self, id: ChannelId) {
        let inbox = self.inbox(id);
        let mut state = inbox.state.lock();
        state.has_ended = true;
        state.wake();
    }

    /// The channel is closed.
    pub(super) fn close(&self, id: ChannelId) {
        let inbox = self.inbox(id);
        let has_reader = {
            let mut state = inbox.state.lock();
            state.has_ended = true;
            state.is_closed = true;
            state.wake();
            state.has_reader
        };
        if has_reader {
            // A reader that comes later must still learn of it.
            self.channels.lock().remove(&id);
        }
        inbox.room.notify_one();
    }

    /// Takes the two directions of a channel apart.
    pub(super) fn split(&self, channel: Channel<Msg>) -> (Reader, Writers) {
        let inbox = self.inbox(channel.id());
        inbox.state.lock().has_reader = true;
        let (_, half) = channel.split();
        (Reader { inbox }, Writers { half, waiting: Arc::clone(&self.waiting_writers) })
    }

    /// A channel as one stream. Dropping it closes the channel.
    pub(super) fn stream(&self, channel: Channel<Msg>, handle: Handle) -> ChannelStream {
        let id = channel.id();
        let (reader, writers) = self.split(channel);
        ChannelStream { inner: tokio::io::join(reader, writers.writer(None)), handle, id }
    }
}

/// Reads what the client sends, to its end.
pub(super) struct Reader {
    inbox: Arc<Inbox>,
}

impl Reader {
    /// Waits until the client has closed the channel.
    pub(super) async fn closed(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.inbox.state.lock();
            if state.is_closed {
                return Poll::Ready(());
            }
            state.register(cx);
            Poll::Pending
        })
        .await;
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.inbox.state.lock();
        let Some(first) = state.pieces.front_mut() else {
            if state.has_ended {
                return Poll::Ready(Ok(()));
            }
            state.register(cx);
            return Poll::Pending;
        };
        let count = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..count]);
        first.advance(count);
        if first.is_empty() {
            state.pieces.pop_front();
        }
        state.bytes -= count;
        let has_room = state.bytes < PAUSE_ABOVE_BYTES;
        drop(state);
        if has_room {
            self.inbox.room.notify_one();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.inbox.state.lock();
        state.is_abandoned = true;
        state.pieces = VecDeque::new();
        state.bytes = 0;
        drop(state);
        self.inbox.room.notify_one();
    }
}

/// Makes the writers of a channel.
pub(super) struct Writers {
    half: ChannelWriteHalf<Msg>,
    waiting: Arc<AtomicUsize>,
}

impl Writers {
    /// A writer of the channel's data, or of a kind of extended data.
    pub(super) fn writer(&self, kind: Option<u32>) -> Writer {
        let inner = Box::new(self.half.make_writer_ext(kind));
        Writer { inner, waiting: Arc::clone(&self.waiting), is_waiting: false }
    }
}

/// Writes to the client. Others see whether it waits.
pub(super) struct Writer {
    inner: Box<dyn AsyncWrite + Send + Unpin>,
    waiting: Arc<AtomicUsize>,
    is_waiting: bool,
}

impl Writer {
    fn note<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        let waits = polled.is_pending();
        if waits != self.is_waiting {
            self.is_waiting = waits;
            if waits {
                self.waiting.fetch_add(1, Ordering::SeqCst);
            } else {
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
        }
        polled
    }
}

impl AsyncWrite for Writer {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.note(polled)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.note(Poll::Ready(()));
    }
}

/// See [`Inboxes::stream`].
pub(super) struct ChannelStream {
    inner: tokio::io::Join<Reader, Writer>,
    handle: Handle,
    id: ChannelId,
}

impl AsyncRead for ChannelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl AsyncWrite for ChannelStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Drop for ChannelStream {
    fn drop(&mut self) {
        let (handle, id) = (self.handle.clone(), self.id);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // The client may be gone.
            runtime.spawn(async move {
                let _ = handle.close(id).await;
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    fn id() -> ChannelId {
        use russh::keys::ssh_encoding::Decode as _;
        ChannelId::decode(&mut &[0_u8, 0, 0, 7][..]).unwrap()
    }

    fn reader(inboxes: &Inboxes) -> Reader {
        let inbox = inboxes.inbox(id());
        inbox.state.lock().has_reader = true;
        Reader { inbox }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_waits_for_the_reader() {
        let inboxes = Inboxes::default();
        let mut reader = reader(&inboxes);
        inboxes.push(id(), &vec![1; PAUSE_ABOVE_BYTES]).await.unwrap();
        let more = inboxes.clone();
        let waits = tokio::spawn(async move { more.push(id(), b"more").await });
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(!waits.is_finished());
        let mut taken = vec![0; PAUSE_ABOVE_BYTES];
        reader.read_exact(&mut taken).await.unwrap();
        waits.await.unwrap().unwrap();
        inboxes.end(id());
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"more");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_goes_on_while_its_output_waits_up_to_a_bound() {
        let inboxes = Inboxes::default();
        let _reader = reader(&inboxes);
        inboxes.waiting_writers.store(1, Ordering::SeqCst);
        let piece = vec![1; CLOSE_ABOVE_BYTES / 64];
        for _ in 0..64 {
            inboxes.push(id(), &piece).await.unwrap();
        }
        assert!(inboxes.push(id(), &piece).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_reader_that_is_gone() {
        let inboxes = Inboxes::default();
        let reader = reader(&inboxes);
        inboxes.push(id(), &vec![1; PAUSE_ABOVE_BYTES]).await.unwrap();
        let more = inboxes.clone();
        let waits = tokio::spawn(async move { more.push(id(), b"more").await });
        tokio::task::yield_now().await;
        drop(reader);
        waits.await.unwrap().unwrap();
        inboxes.close(id());
        assert!(inboxes.channels.lock().is_empty());
    }

    #[tokio::test]
    async fn reader_that_comes_late_learns_of_the_end() {
        let inboxes = Inboxes::default();
        inboxes.push(id(), b"early").await.unwrap();
        inboxes.close(id());
        let mut reader = reader(&inboxes);
        let mut got = Vec::new();
        reader.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"early");
        reader.closed().await;
    }
}
