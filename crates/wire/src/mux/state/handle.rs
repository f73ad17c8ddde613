//! The operations of a stream handle: read, write, end.

use std::task::Waker;

use bytes::{Buf as _, BytesMut};
use tokio::time::Instant;

use super::super::config::STREAM_WINDOW;
use super::super::error::Error;
use super::super::frame::{Flags, Header, Kind};
use super::State;

/// Most bytes of one stream that wait to be written.
const MAX_SEND_BUFFER: usize = 64 << 10;
/// Credit is returned once this many bytes have been consumed.
const CREDIT_STEP: u32 = STREAM_WINDOW / 2;

impl State {
    pub(in crate::mux) fn read(
        &mut self,
        id: u32,
        waker: &Waker,
        into: &mut tokio::io::ReadBuf<'_>,
    ) -> Option<Result<(), Error>> {
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        if entry.reset {
            return Some(Err(Error::Reset));
        }
        if entry.recv.is_empty() {
            if entry.fin_received {
                return Some(Ok(()));
            }
            if let Some(error) = &self.closed {
                return Some(Err(error.clone()));
            }
            set(&mut entry.reader, waker);
            return None;
        }
        let count = entry.recv.len().min(into.remaining());
        into.put_slice(&entry.recv[..count]);
        entry.recv.advance(count);
        if entry.recv.is_empty() {
            // An idle stream owns no buffer.
            entry.recv = BytesMut::new();
        }
        self.release_unread(count);
        self.consume(id, count);
        Some(Ok(()))
    }

    /// Counts bytes as consumed and returns credit when there is enough of it.
    pub(super) fn consume(&mut self, id: u32, count: usize) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.consumed = entry.consumed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if entry.consumed >= CREDIT_STEP && !entry.fin_received && !entry.reset {
            let credit = std::mem::take(&mut entry.consumed);
            entry.recv_window = entry.recv_window.saturating_add(credit);
            self.control.push_back(Header::new(Kind::WindowUpdate, Flags::NONE, id, credit));
            self.wake_task();
        }
    }

    pub(in crate::mux) fn write(
        &mut self,
        id: u32,
        waker: &Waker,
        bytes: &[u8],
    ) -> Option<Result<usize, Error>> {
        if let Err(error) = self.writable(id) {
            return Some(Err(error));
        }
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        let count = MAX_SEND_BUFFER.saturating_sub(entry.send.len()).min(bytes.len());
        if count == 0 && !bytes.is_empty() {
            set(&mut entry.writer, waker);
            return None;
        }
        entry.send.extend_from_slice(&bytes[..count]);
        self.make_ready(id);
        Some(Ok(count))
    }

    /// Completes once the stream's send buffer is empty.
    pub(in crate::mux) fn flush(&mut self, id: u32, waker: &Waker) -> Option<Result<(), Error>> {
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        if entry.send.is_empty() && !entry.reset {
            return Some(Ok(()));
        }
        if entry.reset {
            return Some(Err(Error::Reset));
        }
        if let Some(error) = &self.closed {
            return Some(Err(error.clone()));
        }
        set(&mut entry.writer, waker);
        None
    }

    pub(super) fn writable(&self, id: u32) -> Result<(), Error> {
        let entry = self.streams.get(&id).expect("an entry lives as long as its handle");
        match &self.closed {
            _ if entry.reset => Err(Error::Reset),
            Some(error) => Err(error.clone()),
            None if entry.fin_wanted => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Ends our side of the stream after what was written.
    pub(in crate::mux) fn finish(&mut self, id: u32, now: Instant) {
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        if entry.fin_wanted || entry.reset || self.closed.is_some() {
            return;
        }
        entry.fin_wanted = true;
        self.closing.push_back((now + self.config.close_timeout, id));
        self.make_ready(id);
    }

    /// The handle was dropped.
    pub(in crate::mux) fn detach(&mut self, id: u32, now: Instant) {
        self.finish(id, now);
        let session_over = self.closed.is_some();
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.detached = true;
        (entry.reader, entry.writer) = (None, None);
        let unread = std::mem::take(&mut entry.recv).len();
        let finished = entry.finished();
        self.release_unread(unread);
        if session_over || finished {
            self.remove(id);
        } else {
            self.consume(id, unread);
        }
    }
}

fn set(slot: &mut Option<Waker>, waker: &Waker) {
    if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
        *slot = Some(waker.clone());
    }
}
