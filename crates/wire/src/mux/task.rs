//! The one task of a session. Only it reads and writes the connection and runs the timers.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWriteExt as _, ReadBuf};
use tokio::time::{Instant, Sleep, timeout};

use super::config::CLOSE_TIMEOUT;
use super::error::Error;
use super::frame::{Flags, HEADER, Header, Kind};
use super::inner::Inner;
use super::state::{MAX_BATCH, Payload};
use crate::bytes::ByteStream;

/// Bytes read at once, on the stack, so that an idle session owns no buffer.
const READ_SIZE: usize = 16 << 10;

pub(super) struct SessionTask<T> {
    io: T,
    shared: Arc<Inner>,
    head: [u8; HEADER],
    head_len: usize,
    payload: Option<Payload>,
    out: Vec<u8>,
    written: usize,
    unflushed: bool,
    sleep: Pin<Box<Sleep>>,
}

impl<T: ByteStream> SessionTask<T> {
    pub(super) fn new(io: T, shared: Arc<Inner>) -> Self {
        let sleep = Box::pin(tokio::time::sleep_until(shared.lock().deadline()));
        Self {
            io,
            shared,
            head: [0; HEADER],
            head_len: 0,
            payload: None,
            out: Vec::new(),
            written: 0,
            unflushed: false,
            sleep,
        }
    }

    pub(super) async fn run(mut self) {
        let error = poll_fn(|cx| self.poll(cx)).await;
        tracing::debug!(%error, "the session ended");
        self.shared.lock().end(error.clone());
        self.shared.changed.notify_waiters();
        // The peer may be disconnected or stuck; then the connection is dropped.
        let _ = timeout(CLOSE_TIMEOUT, self.close_connection(&error)).await;
        self.shared.lock().shut = true;
        self.shared.changed.notify_waiters();
    }

    async fn close_connection(&mut self, error: &Error) -> io::Result<()> {
        if matches!(error, Error::Frame(_) | Error::Protocol(_)) {
            self.out.extend_from_slice(&Header::new(Kind::GoAway, Flags::NONE, 0, 1).encode());
            self.io.write_all(&self.out[self.written..]).await?;
        }
        self.io.shutdown().await
    }

    /// Runs the session until its end.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        self.shared.lock().task = Some(cx.waker().clone());
        loop {
            let idle = match self.poll_write(cx) {
                Poll::Ready(Ok(())) => true,
                Poll::Ready(Err(error)) => return Poll::Ready(Error::Io(Arc::new(error))),
                Poll::Pending => false,
            };
            let (congested, closing, changed) = {
                let mut state = self.shared.lock();
                let closing = state.close_by.is_some() && !state.has_output();
                (state.congested(), closing, std::mem::take(&mut state.changed))
            };
            if changed {
                self.shared.changed.notify_waiters();
            }
            if idle && closing {
                return Poll::Ready(Error::Closed);
            }
            let mut repeat = false;
            if !congested {
                match self.poll_read(cx) {
                    Poll::Ready(Ok(more)) => repeat = more,
                    Poll::Ready(Err(error)) => return Poll::Ready(error),
                    Poll::Pending => {}
                }
            }
            if let Err(error) = self.poll_timers(cx) {
                return Poll::Ready(error);
            }
            let mut state = self.shared.lock();
            repeat |= (idle && state.has_output()) || std::mem::take(&mut state.read_again);
            drop(state);
            if !repeat {
                return Poll::Pending;
            }
        }
    }

    /// Writes until nothing is left that may be written.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.written < self.out.len() {
                let count = ready!(Pin::new(&mut self.io).poll_write(cx, &self.out[self.written..]))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                self.written += count;
                self.unflushed = true;
            }
            self.out.clear();
            self.written = 0;
            let mut state = self.shared.lock();
            if state.has_output() {
                self.out.reserve(MAX_BATCH.min(4 << 10));
                state.fill(&mut self.out);
            }
            drop(state);
            if self.out.is_empty() {
                if self.unflushed {
                    ready!(Pin::new(&mut self.io).poll_flush(cx))?;
                    self.unflushed = false;
                }
                self.out = Vec::new();
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Reads once. True when another read may return more.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Error>> {
        let mut space = [MaybeUninit::uninit(); READ_SIZE];
        let mut buffer = ReadBuf::uninit(&mut space);
        if let Err(error) = ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)) {
            return Poll::Ready(Err(Error::Io(Arc::new(error))));
        }
        if buffer.filled().is_empty() {
            return Poll::Ready(Err(Error::Ended));
        }
        Poll::Ready(self.receive(buffer.filled()).map(|()| true))
    }

    fn receive(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let mut state = self.shared.lock();
        state.last_receive = Instant::now();
        while !bytes.is_empty() {
            if let Some(payload) = &mut self.payload {
                let count = bytes.len().min(payload.remaining as usize);
                let (part, rest) = bytes.split_at(count);
                state.payload(payload.stream, part);
                payload.remaining -= u32::try_from(count).expect("no more than what remained");
                bytes = rest;
                if payload.remaining == 0 {
                    state.payload_end(*payload);
                    self.payload = None;
                }
                continue;
            }
            let count = bytes.len().min(HEADER - self.head_len);
            let (part, rest) = bytes.split_at(count);
            self.head[self.head_len..][..count].copy_from_slice(part);
            self.head_len += count;
            bytes = rest;
            if self.head_len == HEADER {
                self.head_len = 0;
                let payload = state.header(Header::decode(&self.head)?)?;
                self.payload = (payload.remaining > 0).then_some(payload);
            }
        }
        Ok(())
    }

    fn poll_timers(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        loop {
            let deadline = self.shared.lock().deadline();
            if self.sleep.deadline() != deadline {
                self.sleep.as_mut().reset(deadline);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.shared.lock().expire(Instant::now())?;
        }
    }
}
