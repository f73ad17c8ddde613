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
        self.unread.expire(now);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use super::super::Role;
    use super::*;
    use crate::mux::Config;

    const SECOND: Duration = Duration::from_secs(1);

    /// A server's state, and when it began.
    fn state() -> (State, Instant) {
        let start = Instant::now();
        (State::new(Role::Server, Config::default(), None, start), start)
    }

    fn ping(value: u32) -> Header {
        Header::new(Kind::Ping, Flags::SYN, 0, value)
    }

    #[test]
    fn a_ping_leaves_at_its_time_and_not_before() {
        let (mut state, start) = state();
        assert_eq!(state.deadline(), start + 30 * SECOND);
        state.expire(start + 29 * SECOND).unwrap();
        assert!(state.control.is_empty());
        state.expire(start + 30 * SECOND).unwrap();
        assert_eq!(state.control, [ping(0)]);
        assert_eq!(state.deadline(), start + 40 * SECOND, "the answer is due");
        // Another timer that is over in between changes nothing.
        state.expire(start + 39 * SECOND).unwrap();
        assert_eq!(state.deadline(), start + 40 * SECOND);
        state.header(Header::new(Kind::Ping, Flags::ACK, 0, 7)).unwrap();
        assert_eq!(state.deadline(), start + 40 * SECOND, "this answers another ping");
        state.header(Header::new(Kind::Ping, Flags::ACK, 0, 0)).unwrap();
        assert_eq!(state.deadline(), start + 60 * SECOND);
        state.expire(start + 60 * SECOND).unwrap();
        assert_eq!(state.control, [ping(0), ping(1)]);
    }

    #[test]
    fn whatever_arrives_after_a_ping_postpones_the_time_for_its_answer() {
        let (mut state, start) = state();
        state.expire(start + 30 * SECOND).unwrap();
        state.last_receive = start + 35 * SECOND;
        state.expire(start + 40 * SECOND).unwrap();
        assert_eq!(state.deadline(), start + 45 * SECOND);
        assert!(matches!(state.expire(start + 45 * SECOND), Err(Error::Silent)));
    }

    #[test]
    fn a_peer_that_sends_nothing_at_all_is_silent() {
        let (mut state, start) = state();
        state.expire(start + 30 * SECOND).unwrap();
        assert!(matches!(state.expire(start + 40 * SECOND), Err(Error::Silent)));
    }

    #[test]
    fn a_close_that_cannot_end_in_time_ends_the_session() {
        let (mut state, start) = state();
        state.close(start + 5 * SECOND);
        state.close(start + 9 * SECOND);
        assert_eq!(state.deadline(), start + 5 * SECOND, "the first call counts");
        state.expire(start + 4 * SECOND).unwrap();
        assert!(matches!(state.expire(start + 5 * SECOND), Err(Error::Closed)));
    }

    #[test]
    fn only_a_stream_that_misses_an_end_is_reset() {
        let limit = Config::default().close_timeout;
        for ends in [Flags::NONE, Flags::FIN] {
            let (mut state, start) = state();
            state.header(Header::new(Kind::WindowUpdate, Flags::SYN, 1, 0)).unwrap();
            state.backlog.clear();
            state.payload(Some(1), b"unread");
            state.finish(1, start);
            state.fill(&mut Vec::new());
            state.header(Header::new(Kind::WindowUpdate, ends, 1, 0)).unwrap();
            state.ping_at = start + 2 * limit;
            state.expire(start + limit).unwrap();
            let reset = ends == Flags::NONE;
            let expected = reset.then(|| Header::new(Kind::WindowUpdate, Flags::RST, 1, 0));
            assert_eq!(state.control.iter().copied().next(), expected);
            assert_eq!(state.unread.bytes(), if reset { 0 } else { 6 });
            assert_eq!(state.deadline(), start + 2 * limit, "nothing more to do for the stream");
        }
    }

    /// Our own end may still wait for credit when the time is over.
    #[test]
    fn a_stream_whose_bytes_never_left_is_reset() {
        let limit = Config::default().close_timeout;
        let (mut state, start) = state();
        state.header(Header::new(Kind::WindowUpdate, Flags::SYN, 1, 0)).unwrap();
        state.backlog.clear();
        state.streams.get_mut(&1).unwrap().send_window = 0;
        assert!(matches!(state.write(1, Waker::noop(), b"abc"), Some(Ok(3))));
        state.header(Header::new(Kind::WindowUpdate, Flags::FIN, 1, 0)).unwrap();
        state.detach(1, start);
        state.control.clear();
        state.ping_at = start + 2 * limit;
        state.expire(start + limit).unwrap();
        assert_eq!(state.control, [Header::new(Kind::WindowUpdate, Flags::RST, 1, 0)]);
        assert_eq!(state.open_streams(), 0);
    }
}
