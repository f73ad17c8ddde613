//! What a session knows: its streams, their credit, and what has to be written. No I/O happens here.
//!
//! One state, because every transition touches both a stream's credit and the session's queue, under one lock; what handles
//! do, what arrives, what leaves and what time brings are in files of their own.

mod arriving;
mod entry;
mod handle;
mod leaving;
mod timers;
mod unread;

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use tokio::sync::oneshot;
use tokio::time::Instant;

pub(super) use self::arriving::Payload;
use self::entry::Entry;
pub(super) use self::leaving::BATCH;
use self::unread::Unread;
use super::error::Error;
use super::frame::{Flags, Header, Kind};
use super::{Config, WINDOW};
use crate::budget::Reservation;

/// Pings of callers that may be on their way at once.
const PINGS: usize = 16;
/// Our own streams that may be without acknowledgement (wire-protocol 2.2).
const UNACKNOWLEDGED: usize = 256;

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
    pub(in crate::mux) heard_at: Instant,
    /// Set when this side closes: what is queued may still leave until then.
    pub(in crate::mux) close_by: Option<Instant>,
    pub(in crate::mux) closed: Option<Error>,
    /// The connection has been shut down, too.
    pub(in crate::mux) shut: bool,
    pub(in crate::mux) driver: Option<Waker>,
    pub(in crate::mux) unread: Unread,
    /// Whether something may be read now has to be looked at again.
    pub(in crate::mux) again: bool,
    /// Waiting callers of `open` or `accept` have something to look at.
    pub(in crate::mux) news: bool,
}

impl State {
    pub(in crate::mux) fn new(role: Role, config: Config, unread: Option<Reservation>, now: Instant) -> Self {
        Self {
            unread: Unread::new(unread),
            again: false,
            ping_at: now + config.keepalive_interval,
            unanswered: None,
            heard_at: now,
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
            driver: None,
            news: false,
        }
    }

    pub(in crate::mux) fn open_streams(&self) -> usize {
        self.streams.len()
    }

    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    /// Opens a stream; none when there are too many without acknowledgement.
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
        if self.unacknowledged >= UNACKNOWLEDGED || self.streams.len() >= self.config.max_streams {
            return Ok(None);
        }
        self.next_id = id.checked_add(2);
        self.streams.insert(id, Entry::new(true));
        self.unacknowledged += 1;
        self.opening.push_back((now + self.config.open_timeout, id));
        self.control.push_back(Header::new(Kind::WindowUpdate, Flags::SYN, id, 0));
        self.wake_driver();
        Ok(Some(id))
    }

    /// Sends a ping for a caller.
    pub(in crate::mux) fn ping(&mut self) -> Result<oneshot::Receiver<()>, Error> {
        if let Some(error) = &self.closed {
            return Err(error.clone());
        }
        self.pings.retain(|(_, waiting)| !waiting.is_closed());
        if self.pings.len() >= PINGS {
            return Err(Error::Silent);
        }
        let (sender, receiver) = oneshot::channel();
        let value = self.queue_ping();
        self.pings.push((value, sender));
        self.wake_driver();
        Ok(receiver)
    }

    fn queue_ping(&mut self) -> u32 {
        let value = self.next_ping;
        self.next_ping = value.wrapping_add(1);
        self.control.push_back(Header::new(Kind::Ping, Flags::SYN, 0, value));
        value
    }

    /// Ends the session once what may leave has left, or at `by`.
    pub(in crate::mux) fn close(&mut self, by: Instant) {
        if self.close_by.is_none() {
            self.close_by = Some(by);
            self.wake_driver();
        }
    }

    fn make_ready(&mut self, id: u32) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        if entry.can_send() && !entry.queued {
            entry.queued = true;
            self.ready.push_back(id);
            self.wake_driver();
        }
    }

    fn remove(&mut self, id: u32) {
        if let Some(entry) = self.streams.remove(&id) {
            self.forget(entry.recv.len());
            if entry.ours && !entry.acknowledged {
                self.unacknowledged -= 1;
            }
        }
        self.news = true;
    }

    /// Bytes that had arrived were read, or are of no use any more.
    fn forget(&mut self, count: usize) {
        if self.unread.gone(count) {
            self.again = true;
            self.wake_driver();
        }
    }

    /// The session is over.
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
        // Streams without a handle have nobody left to remove them.
        let unread: Vec<u32> = self.streams.iter().filter(|(_, e)| e.detached).map(|(id, _)| *id).collect();
        for id in unread {
            self.remove(id);
        }
    }
}
