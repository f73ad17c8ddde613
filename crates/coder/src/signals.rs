//! What the signals mean to long-running commands.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// One wish to stop often arrives twice: a terminal or a container's runtime signals the whole process group, and whoever
/// started the process passes the signal on. Nobody asks again so soon.
const ECHO: Duration = Duration::from_millis(200);

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
    echoes: Echoes,
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
            echoes: Echoes::default(),
            _too_long: open(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next one that is not an echo of the one before.
    pub(crate) async fn next(&mut self) -> Request {
        loop {
            let request = tokio::select! {
                _ = self.terminate.recv() => Request::Drain,
                _ = self.hangup.recv() => Request::Drain,
                _ = self.interrupt.recv() => Request::Cancel,
            };
            if self.echoes.is_fresh(Instant::now()) {
                return request;
            }
        }
    }
}

/// When a signal last counted.
#[derive(Debug, Default)]
struct Echoes(Option<Instant>);

impl Echoes {
    /// Whether a signal at `now` counts. The time runs from the last one that did, so that nobody is put off for long.
    fn is_fresh(&mut self, now: Instant) -> bool {
        let is_fresh = self.0.is_none_or(|last| now.duration_since(last) >= ECHO);
        if is_fresh {
            self.0 = Some(now);
        }
        is_fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_at_once_is_an_echo_and_what_comes_later_counts() {
        let (mut echoes, start) = (Echoes::default(), Instant::now());
        let counted: Vec<_> =
            (0..1000).filter(|millis| echoes.is_fresh(start + Duration::from_millis(*millis))).collect();
        assert_eq!(counted, [0, 200, 400, 600, 800]);
    }
}
