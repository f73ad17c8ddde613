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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::super::Role;
    use super::*;
    use crate::mux::Config;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A server's state with one stream of the peer, which was accepted.
    fn accepted() -> State {
        let mut state = State::new(Role::Server, Config::default(), None, Instant::now());
        receive(&mut state, Flags::SYN);
        assert_eq!(state.backlog.pop_front(), Some(1));
        state.control.clear();
        state
    }

    fn receive(state: &mut State, flags: Flags) {
        state.header(Header::new(Kind::WindowUpdate, flags, 1, 0)).unwrap();
    }

    /// Everything that may leave now.
    fn sent(state: &mut State) -> usize {
        let mut sent = 0;
        while state.has_output() {
            let mut out = Vec::new();
            state.fill(&mut out);
            sent += out.len();
        }
        sent
    }

    #[test]
    fn a_flush_waits_until_the_last_byte_has_left() {
        let mut state = accepted();
        let (wakes, waker) = {
            let wakes = Arc::new(Wakes::default());
            (Arc::clone(&wakes), Waker::from(wakes))
        };
        assert!(matches!(state.flush(1, &waker), Some(Ok(()))), "nothing was written");
        let mut written = 0;
        while let Some(Ok(count)) = state.write(1, Waker::noop(), &[7; 10_000]) {
            written += count;
        }
        assert_eq!(written, MAX_SEND_BUFFER);
        assert!(matches!(state.write(1, Waker::noop(), b""), Some(Ok(0))), "no room is needed for nothing");
        assert!(state.flush(1, &waker).is_none());
        assert!(sent(&mut state) > MAX_SEND_BUFFER);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(matches!(state.flush(1, &waker), Some(Ok(()))));
    }

    #[test]
    fn a_flush_fails_when_what_was_written_cannot_leave_any_more() {
        for reset in [true, false] {
            let mut state = accepted();
            assert!(matches!(state.write(1, Waker::noop(), b"abc"), Some(Ok(3))));
            assert!(state.flush(1, Waker::noop()).is_none());
            if reset {
                receive(&mut state, Flags::RST);
                assert!(matches!(state.flush(1, Waker::noop()), Some(Err(Error::Reset))));
            } else {
                state.end(Error::Silent);
                assert!(matches!(state.flush(1, Waker::noop()), Some(Err(Error::Silent))));
            }
        }
    }

    #[test]
    fn writing_after_the_end_says_which_end_it_was() {
        let write = |state: &mut State| state.write(1, Waker::noop(), b"abc").unwrap();
        let mut state = accepted();
        assert!(write(&mut state).is_ok());
        receive(&mut state, Flags::FIN);
        assert!(write(&mut state).is_ok(), "the other direction is open");
        state.finish(1, Instant::now());
        assert!(matches!(write(&mut state), Err(Error::Closed)));
        state.end(Error::Silent);
        assert!(matches!(write(&mut state), Err(Error::Silent)));
        let mut state = accepted();
        receive(&mut state, Flags::RST);
        assert!(matches!(write(&mut state), Err(Error::Reset)));
    }

    #[test]
    fn credit_is_returned_in_steps_while_the_peer_may_send() {
        let credit = Header::new(Kind::WindowUpdate, Flags::NONE, 1, CREDIT_STEP);
        let consume = |state: &mut State| {
            state.consume(1, CREDIT_STEP as usize - 1);
            assert!(state.control.is_empty(), "not for every read");
            state.consume(1, 1);
        };
        let mut state = accepted();
        consume(&mut state);
        assert_eq!(state.control, [credit]);
        for end in [Flags::FIN, Flags::RST] {
            let mut state = accepted();
            receive(&mut state, end);
            consume(&mut state);
            assert!(state.control.is_empty(), "nothing comes any more");
        }
    }

    /// The end is due once, and never for a stream that is over without it.
    #[test]
    fn a_stream_ends_once() {
        let now = Instant::now();
        let mut state = accepted();
        state.finish(1, now);
        state.finish(1, now);
        assert_eq!(state.closing, [(now + Config::default().close_timeout, 1)]);
        assert_eq!(sent(&mut state), crate::mux::frame::HEADER);
        let mut state = accepted();
        receive(&mut state, Flags::RST);
        state.finish(1, now);
        assert!(state.closing.is_empty() && !state.has_output());
        let mut state = accepted();
        state.end(Error::Ended);
        state.finish(1, now);
        assert!(state.closing.is_empty() && !state.has_output());
    }

    #[test]
    fn a_stream_without_a_handle_stays_until_both_sides_ended_it() {
        let now = Instant::now();
        let mut state = accepted();
        state.detach(1, now);
        sent(&mut state);
        assert_eq!(state.open_streams(), 1);
        receive(&mut state, Flags::FIN);
        assert_eq!(state.open_streams(), 0);

        let mut state = accepted();
        state.finish(1, now);
        sent(&mut state);
        receive(&mut state, Flags::FIN);
        assert_eq!(state.open_streams(), 1, "its bytes may still be read");
        state.detach(1, now);
        assert_eq!(state.open_streams(), 0);
    }
}
