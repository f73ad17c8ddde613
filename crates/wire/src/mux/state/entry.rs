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
