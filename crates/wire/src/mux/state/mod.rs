//! The state of a session: its streams, their credit, and the frames to write. It does no I/O.
//!
//! One struct under one lock, because every transition changes both a stream's credit and the session's queue. The methods
//! are in `handle` (operations of stream handles), `receive`, `send` and `timers`.

mod entry;
mod handle;
mod receive;
mod receive_limit;
mod send;
mod timers;

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use tokio::sync::oneshot;
use tokio::time::Instant;

use self::entry::Entry;
pub(super) use self::receive::Payload;
use self::receive_limit::ReceiveLimit;
pub(super) use self::send::MAX_BATCH;
use super::config::Config;
use super::error::Error;
use super::frame::{Flags, Header, Kind};
use crate::budget::Reservation;

/// Most pings of callers without an answer.
const MAX_PINGS: usize = 16;
/// Most streams of ours without acknowledgement (wire-protocol 2.2).
const MAX_UNACKNOWLEDGED: usize = 256;

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mux) enum Role {
    /// Opens streams with odd ids.
    Client,
    /// Opens streams with even ids.
    Server,
}

/// The state of a session, under one lock that is never held across I/O.
pub(in crate::mux) struct State {
    config: Config,
    role: Role,
    streams: HashMap<u32, Entry>,
    next_id: Option<u32>,
    unacknowledged: usize,
    pub(in crate::mux) backlog: VecDeque<u32>,
    control: VecDeque<Header>,
    ready: VecDeque<u32>,
    opening: VecDeque<(Instant, u32)>,
    closing: VecDeque<(Instant, u32)>,
    next_ping: u32,
    pings: Vec<(u32, oneshot::Sender<()>)>,
    goaway: bool,
    /// When the next keepalive ping leaves.
    ping_at: Instant,
    /// The keepalive ping that has no answer yet, and when it is due.
    unanswered: Option<(u32, Instant)>,
    /// When bytes arrived last.
    pub(in crate::mux) last_receive: Instant,
    /// Set when this side closes: queued frames may be written until then.
    pub(in crate::mux) close_by: Option<Instant>,
    pub(in crate::mux) closed: Option<Error>,
    /// The connection has been shut down, too.
    pub(in crate::mux) shut: bool,
    pub(in crate::mux) task: Option<Waker>,
    pub(in crate::mux) unread: ReceiveLimit,
    /// The task has to check again whether it may read.
    pub(in crate::mux) read_again: bool,
    /// Callers that wait in `open` or `accept` have to check the state again.
    pub(in crate::mux) changed: bool,
}

impl State {
    pub(in crate::mux) fn new(role: Role, config: Config, unread: Option<Reservation>, now: Instant) -> Self {
        Self {
            unread: ReceiveLimit::new(unread),
            read_again: false,
            ping_at: now + config.keepalive_interval,
            unanswered: None,
            last_receive: now,
            close_by: None,
            config,
            role,
            streams: HashMap::new(),
            next_id: Some(if role == Role::Client { 1 } else { 2 }),
            unacknowledged: 0,
            backlog: VecDeque::new(),
            control: VecDeque::new(),
            ready: VecDeque::new(),
            opening: VecDeque::new(),
            closing: VecDeque::new(),
            next_ping: 0,
            pings: Vec::new(),
            goaway: false,
            closed: None,
            shut: false,
            task: None,
            changed: false,
        }
    }

    pub(in crate::mux) fn open_streams(&self) -> usize {
        self.streams.len()
    }

    fn wake_task(&mut self) {
        if let Some(waker) = self.task.take() {
            waker.wake();
        }
    }

    /// Opens a stream; none while too many are without acknowledgement.
    pub(in crate::mux) fn open(&mut self, now: Instant) -> Result<Option<u32>, Error> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        if self.close_by.is_some() {
            return Err(Error::Closed);
        }
        if self.goaway {
            return Err(Error::GoAway);
        }
        let id = self.next_id.ok_or(Error::Exhausted)?;
        if self.unacknowledged >= MAX_UNACKNOWLEDGED || self.streams.len() >= self.config.max_streams {
            return Ok(None);
        }
        self.next_id = id.checked_add(2);
        self.streams.insert(id, Entry::new(true));
        self.unacknowledged += 1;
        self.opening.push_back((now + self.config.open_timeout, id));
        self.control.push_back(Header::new(Kind::WindowUpdate, Flags::SYN, id, 0));
        self.wake_task();
        Ok(Some(id))
    }

    /// Sends a ping for a caller.
    pub(in crate::mux) fn ping(&mut self) -> Result<oneshot::Receiver<()>, Error> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        self.pings.retain(|(_, waiting)| !waiting.is_closed());
        if self.pings.len() >= MAX_PINGS {
            return Err(Error::Silent);
        }
        let (sender, receiver) = oneshot::channel();
        let value = self.queue_ping();
        self.pings.push((value, sender));
        self.wake_task();
        Ok(receiver)
    }

    fn queue_ping(&mut self) -> u32 {
        let value = self.next_ping;
        self.next_ping = value.wrapping_add(1);
        self.control.push_back(Header::new(Kind::Ping, Flags::SYN, 0, value));
        value
    }

    /// Ends the session once its frames are written, or at `by`.
    pub(in crate::mux) fn close(&mut self, by: Instant) {
        if self.close_by.is_none() {
            self.close_by = Some(by);
            self.wake_task();
        }
    }

    fn make_ready(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if entry.can_send() && !entry.queued {
            entry.queued = true;
            self.ready.push_back(id);
            self.wake_task();
        }
    }

    fn remove(&mut self, id: u32) {
        if let Some(entry) = self.streams.remove(&id) {
            self.release_unread(entry.recv.len());
            if entry.ours && !entry.acknowledged {
                self.unacknowledged -= 1;
            }
        }
        self.changed = true;
    }

    /// Counts received bytes as read or discarded.
    fn release_unread(&mut self, count: usize) {
        if self.unread.remove(count) {
            self.read_again = true;
            self.wake_task();
        }
    }

    /// Ends the session.
    pub(in crate::mux) fn end(&mut self, error: Error) {
        if self.closed.is_none() {
            self.closed = Some(error);
        }
        for id in std::mem::take(&mut self.backlog) {
            self.remove(id);
        }
        self.pings.clear();
        self.control = VecDeque::new();
        self.ready = VecDeque::new();
        self.opening = VecDeque::new();
        self.closing = VecDeque::new();
        for entry in self.streams.values_mut() {
            entry.wake();
        }
        // Streams without a handle are removed here only.
        let detached: Vec<u32> = self.streams.iter().filter(|(_, e)| e.detached).map(|(id, _)| *id).collect();
        for id in detached {
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(config: Config) -> State {
        State::new(Role::Client, config, None, Instant::now())
    }

    fn receive(state: &mut State, flags: Flags, id: u32) {
        state.header(Header::new(Kind::WindowUpdate, flags, id, 0)).unwrap();
    }

    #[test]
    fn acknowledged_and_ended_streams_do_not_count_as_unacknowledged() {
        let (mut state, now) = (client(Config::default()), Instant::now());
        let ids = [(); 4].map(|()| state.open(now).unwrap().unwrap());
        assert_eq!((ids, state.unacknowledged), ([1, 3, 5, 7], 4));
        receive(&mut state, Flags::ACK, 1);
        assert_eq!(state.unacknowledged, 3);
        receive(&mut state, Flags::ACK, 1);
        assert_eq!(state.unacknowledged, 3, "twice is once");
        receive(&mut state, Flags::SYN, 2);
        receive(&mut state, Flags::ACK, 2);
        assert_eq!((state.backlog.pop_front(), state.unacknowledged), (Some(2), 3), "one of the peer's");
        for (id, left) in [(2, 3), (1, 3), (3, 2), (5, 1), (7, 0)] {
            receive(&mut state, Flags::RST, id);
            state.detach(id, now);
            assert_eq!(state.unacknowledged, left, "after stream {id}");
        }
        assert_eq!(state.open_streams(), 0);
    }

    #[test]
    fn streams_of_both_ends_count_against_their_bound() {
        let (mut state, now) = (client(Config { max_streams: 3, ..Config::default() }), Instant::now());
        receive(&mut state, Flags::SYN, 2);
        assert_eq!(state.open(now).unwrap(), Some(1));
        assert_eq!(state.open(now).unwrap(), Some(3));
        assert_eq!(state.open(now).unwrap(), None);
        state.control.clear();
        receive(&mut state, Flags::SYN, 4);
        assert_eq!(state.control, [Header::new(Kind::WindowUpdate, Flags::RST, 4, 0)]);
        assert_eq!((state.open_streams(), state.backlog.len()), (3, 1));
    }

    #[test]
    fn a_stream_waits_for_its_turn_once_and_only_with_something_to_send() {
        let (mut state, now) = (client(Config::default()), Instant::now());
        let id = state.open(now).unwrap().unwrap();
        receive(&mut state, Flags::ACK, id);
        assert!(state.ready.is_empty(), "there is nothing to send");
        for _ in 0..3 {
            assert!(matches!(state.write(id, Waker::noop(), b"abc"), Some(Ok(3))));
        }
        assert_eq!(state.ready, [id]);
    }

    #[test]
    fn the_end_of_a_session_leaves_only_streams_that_have_a_handle() {
        let (mut state, now) = (client(Config::default()), Instant::now());
        let ids = [(); 2].map(|()| state.open(now).unwrap().unwrap());
        receive(&mut state, Flags::SYN, 2);
        let mut ping = state.ping().unwrap();
        state.detach(ids[0], now);
        state.end(Error::Silent);
        state.end(Error::Ended);
        assert!(matches!(state.closed, Some(Error::Silent)), "the first cause counts");
        assert!(ping.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert!(state.backlog.is_empty() && !state.has_output());
        assert_eq!(state.streams.keys().collect::<Vec<_>>(), [&ids[1]]);
        state.detach(ids[1], now);
        assert_eq!((state.open_streams(), state.unacknowledged), (0, 0));
    }
}
