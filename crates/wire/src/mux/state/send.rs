//! Frames to write, combined into batches; the streams take turns (round robin).

use std::collections::VecDeque;

use bytes::{Buf as _, BytesMut};

use super::super::frame::{Flags, HEADER, Header, Kind};
use super::State;

/// Most bytes of one stream in its turn.
const TURN_BYTES: usize = 16 << 10;
/// Most bytes of one write to the connection: one WebSocket message.
pub(in crate::mux) const MAX_BATCH: usize = 64 << 10;

impl State {
    /// Whether there are frames that may be written now.
    pub(in crate::mux) fn has_output(&self) -> bool {
        !self.control.is_empty() || !self.ready.is_empty()
    }

    /// Fills one batch: frames without payload first, then the streams in turns.
    pub(in crate::mux) fn fill(&mut self, out: &mut Vec<u8>) {
        while out.len() + HEADER <= MAX_BATCH
            && let Some(header) = self.control.pop_front()
        {
            out.extend_from_slice(&header.encode());
        }
        while out.len() + TURN_BYTES + 2 * HEADER <= MAX_BATCH
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
        let count = entry.send.len().min(entry.send_window as usize).min(TURN_BYTES);
        if count > 0 {
            let length = u32::try_from(count).expect("a quantum is small");
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mux::{Config, Role};

    #[tokio::test]
    async fn frames_leave_in_full_batches_and_their_memory_is_released() {
        let mut state = State::new(Role::Server, Config::default(), None, tokio::time::Instant::now());
        let frames = 3 * MAX_BATCH / HEADER;
        for value in 0..frames {
            let value = u32::try_from(value).unwrap();
            state.control.push_back(Header::new(Kind::Ping, Flags::ACK, 0, value));
        }
        let mut written = 0;
        while state.has_output() {
            let mut batch = Vec::new();
            state.fill(&mut batch);
            written += batch.len();
            let is_full = batch.len() + HEADER > MAX_BATCH;
            assert!(batch.len() <= MAX_BATCH && (is_full || !state.has_output()), "{}", batch.len());
        }
        assert_eq!(written, frames * HEADER);
        assert!(state.control.capacity() <= 64, "{}", state.control.capacity());
    }

    /// A server's state in which each of these streams has so many bytes to send, and then its end.
    fn sending(streams: &[usize]) -> State {
        let now = tokio::time::Instant::now();
        let mut state = State::new(Role::Server, Config::default(), None, now);
        for (id, bytes) in (1..).step_by(2).zip(streams) {
            state.header(Header::new(Kind::WindowUpdate, Flags::SYN, id, 0)).unwrap();
            let written = state.write(id, std::task::Waker::noop(), &vec![7; *bytes]);
            assert!(matches!(written, Some(Ok(count)) if count == *bytes));
            state.finish(id, now);
        }
        state.control.clear();
        state
    }

    /// The ids and the payloads of the next batch; an end has none.
    fn batch(state: &mut State) -> Vec<(u32, usize)> {
        let mut out = Vec::new();
        state.fill(&mut out);
        let (frames, rest) = crate::mux::frame::parse(&out).unwrap();
        assert!(rest.is_empty());
        frames.iter().map(|(header, payload)| (header.stream, payload.len())).collect()
    }

    #[tokio::test]
    async fn streams_take_turns_and_end_behind_their_last_byte() {
        let mut state = sending(&[2 * TURN_BYTES, TURN_BYTES + 1, 0, 9]);
        let turn = TURN_BYTES;
        assert_eq!(batch(&mut state), [(1, turn), (3, turn), (5, 0), (7, 9), (7, 0), (1, turn), (1, 0)]);
        assert_eq!(batch(&mut state), [(3, 1), (3, 0)]);
        assert!(!state.has_output());
    }

    #[tokio::test]
    async fn a_batch_has_as_many_turns_as_fit() {
        let mut state = sending(&[TURN_BYTES; 9]);
        let counts = [(); 3].map(|()| batch(&mut state).iter().filter(|(_, payload)| *payload > 0).count());
        assert_eq!(counts, [3, 3, 3]);
    }

    /// The longest turn has two headers: that of its payload, and that of the end.
    #[tokio::test]
    async fn a_turn_that_does_not_fit_whole_waits_for_the_next_batch() {
        let room = TURN_BYTES + 2 * HEADER;
        let frames = (MAX_BATCH - room) / HEADER - 4;
        for first in 1..60 {
            let mut state = sending(&[first, TURN_BYTES]);
            state.control.extend(vec![Header::new(Kind::Ping, Flags::ACK, 0, 1); frames]);
            let mut out = Vec::new();
            state.fill(&mut out);
            let before = (frames + 2) * HEADER + first;
            let fits = before + room <= MAX_BATCH;
            assert_eq!((out.len(), state.has_output()), (if fits { before + room } else { before }, !fits));
        }
    }
}
