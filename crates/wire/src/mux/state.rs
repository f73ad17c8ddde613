//! What a session knows: its streams, their credit, and what has to be written. No I/O happens here.
//!
//! One file, because every transition touches both a stream's credit and the session's queue, under one lock.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::{Buf as _, BytesMut};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::error::Error;
use super::frame::{Flags, HEADER, Header, Kind};
use super::{Config, WINDOW};

/// Bytes one stream may have waiting to be written.
const SEND_BUFFER: usize = 64 << 10;
/// Bytes one stream may write before the next has its turn.
const TURN: usize = 16 << 10;
/// Bytes gathered into one write to the connection: one WebSocket message.
pub(super) const BATCH: usize = 64 << 10;
/// Frames without payload that may wait; while there are more, nothing is read.
const CONTROL_LIMIT: usize = 1024;
/// Credit is returned once this much has been consumed.
const CREDIT_STEP: u32 = WINDOW / 2;
/// What a peer may send to a stream that nobody reads any more before its credit ends.
const DISCARD_LIMIT: u64 = 128 << 20;
/// Pings of callers that may be on their way at once.
const PINGS: usize = 16;
/// Our own streams that may be without acknowledgement (wire-protocol 2.2).
const UNACKNOWLEDGED: usize = 256;

/// Which end of the connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Opens streams with odd ids.
    Client,
    /// Opens streams with even ids.
    Server,
}

/// One stream.
#[derive(Default)]
pub(super) struct Entry {
    recv: BytesMut,
    /// Credit the peer has left.
    recv_window: u32,
    /// Consumed bytes whose credit has not been returned yet.
    consumed: u32,
    send: BytesMut,
    /// Credit we have left.
    send_window: u32,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    ours: bool,
    acknowledged: bool,
    fin_wanted: bool,
    fin_sent: bool,
    fin_received: bool,
    reset: bool,
    /// The handle is gone; what arrives is thrown away.
    detached: bool,
    /// Listed in `ready`.
    queued: bool,
    discarded: u64,
}

impl Entry {
    fn new(ours: bool) -> Self {
        Self { recv_window: WINDOW, send_window: WINDOW, ours, ..Self::default() }
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn finished(&self) -> bool {
        self.detached && (self.reset || (self.fin_sent && self.fin_received))
    }

    fn can_send(&self) -> bool {
        let data = !self.send.is_empty() && self.send_window > 0;
        !self.reset && (data || (self.send.is_empty() && self.fin_wanted && !self.fin_sent))
    }
}

/// Where the payload of a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Payload {
    /// The stream, or none when the payload is dropped.
    pub(super) stream: Option<u32>,
    /// Bytes still to come.
    pub(super) remaining: u32,
    /// The peer's side ends after them.
    pub(super) fin: bool,
}

/// The state of a session, under one lock that is never held across I/O.
pub(super) struct State {
    config: Config,
    role: Role,
    streams: HashMap<u32, Entry>,
    next_id: Option<u32>,
    unacknowledged: usize,
    pub(super) backlog: VecDeque<u32>,
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
    pub(super) heard_at: Instant,
    /// Set when this side closes: what is queued may still leave until then.
    pub(super) close_by: Option<Instant>,
    pub(super) closed: Option<Error>,
    /// The connection has been shut down, too.
    pub(super) shut: bool,
    pub(super) driver: Option<Waker>,
    /// Waiting callers of `open` or `accept` have something to look at.
    pub(super) news: bool,
}

impl State {
    pub(super) fn new(role: Role, config: Config, now: Instant) -> Self {
        Self {
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

    pub(super) fn open_streams(&self) -> usize {
        self.streams.len()
    }

    fn wake_driver(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    // --- streams opened and taken here

    /// Opens a stream; none when there are too many without acknowledgement.
    pub(super) fn open(&mut self, now: Instant) -> Result<Option<u32>, Error> {
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
    pub(super) fn ping(&mut self) -> Result<oneshot::Receiver<()>, Error> {
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
    pub(super) fn close(&mut self, by: Instant) {
        if self.close_by.is_none() {
            self.close_by = Some(by);
            self.wake_driver();
        }
    }

    // --- what a handle does

    pub(super) fn read(
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
        self.consume(id, count);
        Some(Ok(()))
    }

    /// Counts bytes as consumed and returns credit when there is enough of it.
    fn consume(&mut self, id: u32, count: usize) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.consumed = entry.consumed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if entry.consumed >= CREDIT_STEP && !entry.fin_received && !entry.reset {
            let credit = std::mem::take(&mut entry.consumed);
            entry.recv_window = entry.recv_window.saturating_add(credit);
            self.control.push_back(Header::new(Kind::WindowUpdate, Flags::NONE, id, credit));
            self.wake_driver();
        }
    }

    pub(super) fn write(&mut self, id: u32, waker: &Waker, bytes: &[u8]) -> Option<Result<usize, Error>> {
        if let Err(error) = self.writable(id) {
            return Some(Err(error));
        }
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        let count = SEND_BUFFER.saturating_sub(entry.send.len()).min(bytes.len());
        if count == 0 && !bytes.is_empty() {
            set(&mut entry.writer, waker);
            return None;
        }
        entry.send.extend_from_slice(&bytes[..count]);
        self.make_ready(id);
        Some(Ok(count))
    }

    /// Done once everything written has left the stream's buffer.
    pub(super) fn flush(&mut self, id: u32, waker: &Waker) -> Option<Result<(), Error>> {
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

    fn writable(&self, id: u32) -> Result<(), Error> {
        let entry = self.streams.get(&id).expect("an entry lives as long as its handle");
        match &self.closed {
            _ if entry.reset => Err(Error::Reset),
            Some(error) => Err(error.clone()),
            None if entry.fin_wanted => Err(Error::Closed),
            None => Ok(()),
        }
    }

    /// Ends our side of the stream after what was written.
    pub(super) fn finish(&mut self, id: u32, now: Instant) {
        let entry = self.streams.get_mut(&id).expect("an entry lives as long as its handle");
        if entry.fin_wanted || entry.reset || self.closed.is_some() {
            return;
        }
        entry.fin_wanted = true;
        self.closing.push_back((now + self.config.close_timeout, id));
        self.make_ready(id);
    }

    /// The handle is gone.
    pub(super) fn detach(&mut self, id: u32, now: Instant) {
        self.finish(id, now);
        let session_over = self.closed.is_some();
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.detached = true;
        (entry.reader, entry.writer) = (None, None);
        let unread = std::mem::take(&mut entry.recv).len();
        if session_over || entry.finished() {
            self.remove(id);
        } else {
            self.consume(id, unread);
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
        if let Some(entry) = self.streams.remove(&id)
            && entry.ours
            && !entry.acknowledged
        {
            self.unacknowledged -= 1;
        }
        self.news = true;
    }

    // --- what arrives

    /// Whether so much waits to be written that nothing may be read.
    pub(super) fn congested(&self) -> bool {
        self.control.len() > CONTROL_LIMIT
    }

    /// Takes a header; the payload of a Data frame follows.
    pub(super) fn header(&mut self, header: Header) -> Result<Payload, Error> {
        let none = Payload { stream: None, remaining: 0, fin: false };
        match header.kind {
            Kind::Ping => {
                self.ping_arrived(header);
                Ok(none)
            }
            Kind::GoAway if header.length == 0 => {
                self.goaway = true;
                self.news = true;
                Ok(none)
            }
            Kind::GoAway => Err(Error::PeerError(header.length)),
            Kind::Data | Kind::WindowUpdate => self.stream_header(header),
        }
    }

    fn ping_arrived(&mut self, header: Header) {
        if header.flags.has(Flags::SYN) {
            self.control.push_back(Header::new(Kind::Ping, Flags::ACK, 0, header.length));
        } else if self.unanswered.is_some_and(|(value, _)| value == header.length) {
            self.unanswered = None;
        } else if let Some(at) = self.pings.iter().position(|(value, _)| *value == header.length) {
            let (_, waiting) = self.pings.swap_remove(at);
            // Nobody waiting any more is fine.
            let _ = waiting.send(());
        }
    }

    fn stream_header(&mut self, header: Header) -> Result<Payload, Error> {
        let id = header.stream;
        if header.flags.has(Flags::SYN) {
            self.syn(id)?;
        }
        let data = header.kind == Kind::Data;
        let remaining = if data { header.length } else { 0 };
        let Some(entry) = self.streams.get_mut(&id) else {
            // A frame may cross the end of its stream; its payload cannot exceed a whole window.
            if remaining > WINDOW {
                return Err(Error::Protocol("more payload for an unknown stream than any credit"));
            }
            return Ok(Payload { stream: None, remaining, fin: false });
        };
        if header.flags.has(Flags::ACK) && entry.ours && !entry.acknowledged {
            entry.acknowledged = true;
            self.unacknowledged -= 1;
            self.news = true;
        }
        if data {
            entry.recv_window = entry
                .recv_window
                .checked_sub(remaining)
                .ok_or(Error::Protocol("more payload than the stream has credit for"))?;
        } else {
            entry.send_window = entry.send_window.saturating_add(header.length);
        }
        if header.flags.has(Flags::RST) {
            entry.reset = true;
            (entry.recv, entry.send) = (BytesMut::new(), BytesMut::new());
            entry.wake();
            let unaccepted = self.backlog.iter().position(|waiting| *waiting == id);
            unaccepted.map(|at| self.backlog.remove(at));
            if entry.detached || unaccepted.is_some() {
                self.remove(id);
            }
            return Ok(Payload { stream: None, remaining, fin: false });
        }
        self.make_ready(id);
        let payload = Payload { stream: Some(id), remaining, fin: header.flags.has(Flags::FIN) };
        if remaining == 0 {
            self.payload_end(payload);
        }
        Ok(payload)
    }

    /// A new stream of the peer. Acknowledged at once: the official daemon gives the session up after 75 s without.
    fn syn(&mut self, id: u32) -> Result<(), Error> {
        let odd = id % 2 == 1;
        if id == 0 || odd == (self.role == Role::Client) {
            return Err(Error::Protocol("a new stream has an id of the wrong parity"));
        }
        if self.streams.contains_key(&id) {
            return Err(Error::Protocol("a stream was opened twice"));
        }
        if self.backlog.len() >= self.config.accept_backlog || self.streams.len() >= self.config.max_streams {
            self.control.push_back(Header::new(Kind::WindowUpdate, Flags::RST, id, 0));
            return Ok(());
        }
        self.streams.insert(id, Entry::new(false));
        self.backlog.push_back(id);
        self.control.push_back(Header::new(Kind::WindowUpdate, Flags::ACK, id, 0));
        self.news = true;
        Ok(())
    }

    /// Takes some bytes of a payload.
    pub(super) fn payload(&mut self, stream: Option<u32>, bytes: &[u8]) {
        let Some((id, entry)) = stream.and_then(|id| Some((id, self.streams.get_mut(&id)?))) else { return };
        if entry.reset || entry.fin_received {
            return;
        }
        if entry.detached {
            entry.discarded += bytes.len() as u64;
            if entry.discarded <= DISCARD_LIMIT {
                self.consume(id, bytes.len());
            }
            return;
        }
        entry.recv.extend_from_slice(bytes);
        if let Some(waker) = entry.reader.take() {
            waker.wake();
        }
    }

    /// The payload is complete.
    pub(super) fn payload_end(&mut self, payload: Payload) {
        let Some((id, entry)) = payload.stream.and_then(|id| Some((id, self.streams.get_mut(&id)?))) else {
            return;
        };
        if payload.fin {
            entry.fin_received = true;
            if let Some(waker) = entry.reader.take() {
                waker.wake();
            }
            if entry.finished() {
                self.remove(id);
            }
        }
    }

    // --- what leaves

    /// Whether anything waits to be written that may be written now.
    pub(super) fn has_output(&self) -> bool {
        !self.control.is_empty() || !self.ready.is_empty()
    }

    /// Gathers frames for one write: those without payload first, then the streams in turns.
    pub(super) fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() + HEADER <= BATCH
            && let Some(header) = self.control.pop_front()
        {
            out.extend_from_slice(&header.encode());
        }
        while out.len() + TURN + 2 * HEADER <= BATCH
            && let Some(id) = self.ready.pop_front()
        {
            self.fill_stream(id, out);
        }
        if self.control.is_empty() && self.control.capacity() > 64 {
            self.control = VecDeque::new();
        }
    }

    fn fill_stream(&mut self, id: u32, out: &mut Vec<u8>) {
        let Some(entry) = self.streams.get_mut(&id) else { return };
        entry.queued = false;
        if entry.reset {
            return;
        }
        let count = entry.send.len().min(entry.send_window as usize).min(TURN);
        if count > 0 {
            let length = u32::try_from(count).expect("a turn is small");
            out.extend_from_slice(&Header::new(Kind::Data, Flags::NONE, id, length).encode());
            out.extend_from_slice(&entry.send[..count]);
            entry.send.advance(count);
            entry.send_window -= length;
            if entry.send.is_empty() {
                entry.send = BytesMut::new();
            }
            if let Some(waker) = entry.writer.take() {
                waker.wake();
            }
        }
        if entry.send.is_empty() && entry.fin_wanted && !entry.fin_sent {
            entry.fin_sent = true;
            out.extend_from_slice(&Header::new(Kind::WindowUpdate, Flags::FIN, id, 0).encode());
            if entry.finished() {
                self.remove(id);
                return;
            }
        }
        if entry.can_send() {
            entry.queued = true;
            self.ready.push_back(id);
        }
    }

    // --- time

    /// The next instant at which [`State::expire`] has something to do.
    pub(super) fn deadline(&mut self) -> Instant {
        let streams = &self.streams;
        while self
            .opening
            .front()
            .is_some_and(|(_, id)| streams.get(id).is_none_or(|entry| entry.acknowledged))
        {
            self.opening.pop_front();
        }
        while self.closing.front().is_some_and(|(_, id)| !streams.contains_key(id)) {
            self.closing.pop_front();
        }
        let streams =
            [&self.opening, &self.closing].into_iter().filter_map(|queue| Some(queue.front()?.0)).min();
        let keepalive = self.unanswered.map_or(self.ping_at, |(_, due)| due);
        [streams, self.close_by].into_iter().flatten().fold(keepalive, Instant::min)
    }

    /// Ends what took too long.
    pub(super) fn expire(&mut self, now: Instant) -> Result<(), Error> {
        while self.closing.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.closing.pop_front() else { break };
            let Some(entry) = self.streams.get_mut(&id) else { continue };
            if entry.fin_sent && entry.fin_received {
                continue;
            }
            // The peer never ended its side: the stream is given up, as the Go library does.
            entry.reset = true;
            (entry.recv, entry.send) = (BytesMut::new(), BytesMut::new());
            entry.wake();
            let finished = entry.finished();
            self.control.push_back(Header::new(Kind::WindowUpdate, Flags::RST, id, 0));
            if finished {
                self.remove(id);
            }
        }
        self.deadline();
        if self.opening.front().is_some_and(|(at, _)| *at <= now) {
            return Err(Error::OpenTimeout);
        }
        if self.close_by.is_some_and(|by| by <= now) {
            return Err(Error::Closed);
        }
        self.keepalive(now)
    }

    /// Sends the next ping, or ends a silent session. Anything that arrived after the ping counts as a sign of life:
    /// on a slow line the answer waits behind data.
    fn keepalive(&mut self, now: Instant) -> Result<(), Error> {
        match self.unanswered {
            Some((value, due)) if due <= now => {
                let due = self.heard_at + self.config.keepalive_timeout;
                if due <= now {
                    return Err(Error::Silent);
                }
                self.unanswered = Some((value, due));
            }
            None if self.ping_at <= now => {
                let value = self.queue_ping();
                self.unanswered = Some((value, now + self.config.keepalive_timeout));
                self.ping_at = now + self.config.keepalive_interval;
            }
            _ => {}
        }
        Ok(())
    }

    /// The session is over.
    pub(super) fn end(&mut self, error: Error) {
        if self.closed.is_none() {
            self.closed = Some(error);
        }
        for id in std::mem::take(&mut self.backlog) {
            self.streams.remove(&id);
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
            self.streams.remove(&id);
        }
    }
}

fn set(slot: &mut Option<Waker>, waker: &Waker) {
    if !slot.as_ref().is_some_and(|old| old.will_wake(waker)) {
        *slot = Some(waker.clone());
    }
}
