//! What the signals mean to long-running commands.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGTERM and SIGHUP: finish what is under way, then end.
    Drain,
    /// SIGINT: cancel what is under way, then end.
    Cancel,
}

/// The signals from now on.
pub(crate) struct Signals {
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
    /// Never awaited. A write beyond the limit on the length of files is an error like that of a full disk, not the end.
    _too_long: Signal,
}

impl Signals {
    /// Takes the signals over; their default effect is gone.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let open = |kind| signal(kind).context("take over signals");
        Ok(Self {
            terminate: open(SignalKind::terminate())?,
            hangup: open(SignalKind::hangup())?,
            interrupt: open(SignalKind::interrupt())?,
            _too_long: open(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::Drain,
            _ = self.hangup.recv() => Request::Drain,
            _ = self.interrupt.recv() => Request::Cancel,
        }
    }
}
