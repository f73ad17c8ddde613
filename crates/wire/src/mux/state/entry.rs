//! One stream in the state of its session: bytes to read and to write, and the credit for both.

use std::task::Waker;

use bytes::BytesMut;

use super::super::config::STREAM_WINDOW;

/// One stream.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) recv: BytesMut,
    /// Remaining credit of the peer.
    pub(super) recv_window: u32,
    /// Consumed bytes whose credit has not been returned yet.
    pub(super) consumed: u32,
    pub(super) send: BytesMut,
    /// Our remaining credit.
    pub(super) send_window: u32,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
    pub(super) ours: bool,
    pub(super) acknowledged: bool,
    pub(super) fin_wanted: bool,
    pub(super) fin_sent: bool,
    pub(super) fin_received: bool,
    pub(super) reset: bool,
    /// The handle was dropped; received bytes are discarded.
    pub(super) detached: bool,
    /// Listed in `ready`.
    pub(super) queued: bool,
    pub(super) discarded: u64,
}

impl Entry {
    pub(super) fn new(ours: bool) -> Self {
        Self { recv_window: STREAM_WINDOW, send_window: STREAM_WINDOW, ours, ..Self::default() }
    }

    pub(super) fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    pub(super) fn finished(&self) -> bool {
        self.detached && (self.reset || (self.fin_sent && self.fin_received))
    }

    pub(super) fn can_send(&self) -> bool {
        let data = !self.send.is_empty() && self.send_window > 0;
        !self.reset && (data || (self.send.is_empty() && self.fin_wanted && !self.fin_sent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_sends_its_bytes_as_far_as_its_credit_and_then_its_end() {
        let bytes = |count: usize| BytesMut::from(&[7; 9][..count]);
        let entry = || Entry::new(true);
        for (name, entry, expected) in [
            ("nothing", entry(), false),
            ("bytes", Entry { send: bytes(9), ..entry() }, true),
            ("bytes without credit", Entry { send: bytes(9), send_window: 0, ..entry() }, false),
            ("bytes of a reset stream", Entry { send: bytes(9), reset: true, ..entry() }, false),
            ("the end", Entry { fin_wanted: true, ..entry() }, true),
            ("the end without credit", Entry { fin_wanted: true, send_window: 0, ..entry() }, true),
            ("the end again", Entry { fin_wanted: true, fin_sent: true, ..entry() }, false),
            ("the end of a reset stream", Entry { fin_wanted: true, reset: true, ..entry() }, false),
            (
                "the end behind bytes without credit",
                Entry { send: bytes(9), send_window: 0, fin_wanted: true, ..entry() },
                false,
            ),
        ] {
            assert_eq!(entry.can_send(), expected, "{name}");
        }
    }

    #[test]
    fn a_stream_without_a_handle_is_over_after_both_ends_or_a_reset() {
        let entry = || Entry::new(true);
        for (name, entry, expected) in [
            ("no end", entry(), false),
            ("our end", Entry { fin_sent: true, ..entry() }, false),
            ("the peer's end", Entry { fin_received: true, ..entry() }, false),
            ("both ends", Entry { fin_sent: true, fin_received: true, ..entry() }, true),
            ("a reset", Entry { reset: true, ..entry() }, true),
        ] {
            assert!(!entry.finished(), "{name}, but somebody has the handle");
            assert_eq!(Entry { detached: true, ..entry }.finished(), expected, "{name}");
        }
    }
}
