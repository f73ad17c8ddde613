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
}
