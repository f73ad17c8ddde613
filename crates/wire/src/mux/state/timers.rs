//! Timeouts: streams that are not acknowledged or not ended, and silent peers.

use bytes::BytesMut;
use tokio::time::Instant;

use super::super::error::Error;
use super::super::frame::{Flags, Header, Kind};
use super::State;

impl State {
    /// The next instant at which [`State::expire`] has something to do.
    pub(in crate::mux) fn deadline(&mut self) -> Instant {
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
        [streams, self.close_by, self.unread.deadline()].into_iter().flatten().fold(keepalive, Instant::min)
    }

    /// Applies the timeouts that are over.
    pub(in crate::mux) fn expire(&mut self, now: Instant) -> Result<(), Error> {
        self.read_again |= self.unread.expire(now);
        while self.closing.front().is_some_and(|(at, _)| *at <= now) {
            let Some((_, id)) = self.closing.pop_front() else { break };
            let Some(entry) = self.streams.get_mut(&id) else { continue };
            if entry.fin_sent && entry.fin_received {
                continue;
            }
            // The peer never ended its side: the stream is reset, as in the Go library.
            entry.reset = true;
            let unread = std::mem::take(&mut entry.recv).len();
            entry.send = BytesMut::new();
            entry.wake();
            let finished = entry.finished();
            self.release_unread(unread);
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

    /// Sends the next ping, or ends a silent session. Anything that arrives after the ping counts as an answer:
    /// on a slow connection the answer waits behind data.
    fn keepalive(&mut self, now: Instant) -> Result<(), Error> {
        match self.unanswered {
            Some((value, due)) if due <= now => {
                let due = self.last_receive + self.config.keepalive_timeout;
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
}
