//! Received frames: headers, payload, new streams of the peer.

use bytes::BytesMut;

use super::super::config::STREAM_WINDOW;
use super::super::error::Error;
use super::super::frame::{Flags, Header, Kind};
use super::entry::Entry;
use super::{Role, State};

/// Most frames without payload that wait to be written; while there are more, nothing is read.
const MAX_CONTROL_FRAMES: usize = 1024;
/// Bytes that a peer may send to a stream without a reader before its credit ends.
const MAX_DISCARDED: u64 = 128 << 20;

/// The destination of the payload of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mux) struct Payload {
    /// The stream, or none when the payload is discarded.
    pub(in crate::mux) stream: Option<u32>,
    /// Bytes still to come.
    pub(in crate::mux) remaining: u32,
    /// The peer's direction ends after them.
    pub(in crate::mux) fin: bool,
}

impl State {
    /// Whether so much waits to be written or to be read that the connection must not be read.
    pub(in crate::mux) fn congested(&mut self) -> bool {
        self.control.len() > MAX_CONTROL_FRAMES || self.unread.is_full()
    }

    /// Processes a header; the payload of a Data frame follows.
    pub(in crate::mux) fn header(&mut self, header: Header) -> Result<Payload, Error> {
        let none = Payload { stream: None, remaining: 0, fin: false };
        match header.kind {
            Kind::Ping => {
                self.receive_ping(header);
                Ok(none)
            }
            Kind::GoAway if header.length == 0 => {
                self.goaway = true;
                self.changed = true;
                Ok(none)
            }
            Kind::GoAway => Err(Error::PeerError(header.length)),
            Kind::Data | Kind::WindowUpdate => self.stream_header(header),
        }
    }

    fn receive_ping(&mut self, header: Header) {
        if header.flags.has(Flags::SYN) {
            self.control.push_back(Header::new(Kind::Ping, Flags::ACK, 0, header.length));
        } else if self.unanswered.is_some_and(|(value, _)| value == header.length) {
            self.unanswered = None;
        } else if let Some(at) = self.pings.iter().position(|(value, _)| *value == header.length) {
            let (_, waiting) = self.pings.swap_remove(at);
            // The caller may have stopped waiting.
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
            if remaining > STREAM_WINDOW {
                return Err(Error::Protocol("more payload for an unknown stream than any credit"));
            }
            return Ok(Payload { stream: None, remaining, fin: false });
        };
        if header.flags.has(Flags::ACK) && entry.ours && !entry.acknowledged {
            entry.acknowledged = true;
            self.unacknowledged -= 1;
            self.changed = true;
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
            let unread = std::mem::take(&mut entry.recv).len();
            entry.send = BytesMut::new();
            entry.wake();
            let detached = entry.detached;
            self.release_unread(unread);
            let unaccepted = self.backlog.iter().position(|waiting| *waiting == id);
            unaccepted.map(|at| self.backlog.remove(at));
            if detached || unaccepted.is_some() {
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

    /// Accepts a new stream of the peer and acknowledges it at once: without, the official daemon ends the session after
    /// 75 s.
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
        self.changed = true;
        Ok(())
    }

    /// Processes some bytes of a payload.
    pub(in crate::mux) fn payload(&mut self, stream: Option<u32>, bytes: &[u8]) {
        let Some((id, entry)) = stream.and_then(|id| Some((id, self.streams.get_mut(&id)?))) else { return };
        if entry.reset || entry.fin_received {
            return;
        }
        if entry.detached {
            entry.discarded += bytes.len() as u64;
            if entry.discarded <= MAX_DISCARDED {
                self.consume(id, bytes.len());
            }
            return;
        }
        entry.recv.extend_from_slice(bytes);
        self.unread.add(bytes.len());
        if let Some(waker) = entry.reader.take() {
            waker.wake();
        }
    }

    /// Processes the end of a payload.
    pub(in crate::mux) fn payload_end(&mut self, payload: Payload) {
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
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::mux::Config;

    fn state(role: Role) -> State {
        State::new(role, Config::default(), None, Instant::now())
    }

    fn receive(state: &mut State, kind: Kind, flags: Flags, id: u32, length: u32) -> Result<Payload, Error> {
        state.header(Header::new(kind, flags, id, length))
    }

    #[test]
    fn a_peer_opens_streams_of_its_own_parity_and_each_once() {
        for (role, good, bad) in [(Role::Server, [1, 3, 7], [0, 2, 4]), (Role::Client, [2, 4, 8], [0, 1, 3])]
        {
            let mut state = state(role);
            let mut open = |id| receive(&mut state, Kind::WindowUpdate, Flags::SYN, id, 0);
            for id in good {
                assert!(open(id).is_ok(), "{role:?} {id}");
                assert!(matches!(open(id), Err(Error::Protocol(what)) if what.contains("twice")));
            }
            for id in bad {
                let result = open(id);
                assert!(
                    matches!(result, Err(Error::Protocol(what)) if what.contains("parity")),
                    "{role:?} {id}"
                );
            }
            assert_eq!(state.backlog, good);
        }
    }

    #[test]
    fn payload_of_an_unknown_stream_is_skipped_up_to_a_whole_window() {
        let mut state = state(Role::Server);
        let mut data = |length| receive(&mut state, Kind::Data, Flags::FIN, 9, length);
        let skipped = Payload { stream: None, remaining: STREAM_WINDOW, fin: false };
        assert!(data(STREAM_WINDOW).is_ok_and(|payload| payload == skipped));
        assert!(matches!(data(STREAM_WINDOW + 1), Err(Error::Protocol(_))));
        // A window update has no payload, however large the window is.
        assert!(receive(&mut state, Kind::WindowUpdate, Flags::NONE, 9, u32::MAX).is_ok());
    }

    #[test]
    fn a_reset_takes_its_own_stream_out_of_those_that_wait() {
        let mut state = state(Role::Server);
        for id in [1, 3, 5, 7] {
            receive(&mut state, Kind::WindowUpdate, Flags::SYN, id, 0).unwrap();
        }
        assert_eq!(state.backlog.pop_front(), Some(1));
        receive(&mut state, Kind::WindowUpdate, Flags::RST, 5, 0).unwrap();
        assert_eq!(state.backlog, [3, 7]);
        assert_eq!(state.open_streams(), 3);
        receive(&mut state, Kind::WindowUpdate, Flags::RST, 1, 0).unwrap();
        assert_eq!(state.open_streams(), 3, "somebody has the handle");
        state.detach(1, Instant::now());
        assert_eq!(state.open_streams(), 2);
    }

    #[test]
    fn bytes_behind_the_end_of_a_stream_are_not_kept() {
        for end in [Flags::FIN, Flags::RST] {
            let mut state = state(Role::Server);
            receive(&mut state, Kind::WindowUpdate, Flags::SYN, 1, 0).unwrap();
            state.backlog.clear();
            state.payload(Some(1), b"abc");
            assert_eq!(state.unread.bytes(), 3);
            receive(&mut state, Kind::WindowUpdate, end, 1, 0).unwrap();
            let kept = state.unread.bytes();
            assert_eq!(kept, if end == Flags::FIN { 3 } else { 0 }, "a reset discards what was not read");
            state.payload(Some(1), b"def");
            assert_eq!(state.unread.bytes(), kept);
        }
    }

    #[test]
    fn the_end_of_a_stream_comes_behind_the_payload_of_its_frame() {
        let mut state = state(Role::Server);
        receive(&mut state, Kind::WindowUpdate, Flags::SYN, 1, 0).unwrap();
        let payload = receive(&mut state, Kind::Data, Flags::FIN, 1, 3).unwrap();
        assert_eq!(payload, Payload { stream: Some(1), remaining: 3, fin: true });
        state.payload(payload.stream, b"abc");
        state.payload_end(payload);
        assert_eq!(state.unread.bytes(), 3);
        assert!(state.streams[&1].fin_received);
    }

    #[test]
    fn a_peer_that_sends_on_to_nobody_loses_its_credit_after_128_mib() {
        let mut state = state(Role::Server);
        receive(&mut state, Kind::WindowUpdate, Flags::SYN, 1, 0).unwrap();
        state.backlog.clear();
        state.detach(1, Instant::now());
        let bytes = vec![0; 1 << 20];
        for mib in 1..=130_u64 {
            state.control.clear();
            state.payload(Some(1), &bytes);
            assert_eq!(!state.control.is_empty(), mib << 20 <= MAX_DISCARDED, "{mib} MiB");
        }
        assert_eq!(state.unread.bytes(), 0);
    }

    #[test]
    fn nothing_is_read_while_many_answers_wait() {
        let mut state = state(Role::Server);
        for waiting in 1..=MAX_CONTROL_FRAMES + 2 {
            receive(&mut state, Kind::Ping, Flags::SYN, 0, 1).unwrap();
            assert_eq!(state.congested(), waiting > MAX_CONTROL_FRAMES, "{waiting}");
        }
    }
}
