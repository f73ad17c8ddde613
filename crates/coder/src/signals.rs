//! The signals of long-running commands.

use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// One request to stop often arrives twice: a terminal or a container runtime signals the whole process group, and the parent
/// process forwards the signal. A person does not repeat it within this time.
const REPEAT_WINDOW: Duration = Duration::from_millis(200);

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// SIGTERM and SIGHUP: finish running work, then end.
    Drain,
    /// SIGINT: cancel running work, then end.
    Cancel,
}

/// The signals from now on.
pub(crate) struct Signals {
    terminate: Signal,
    hangup: Signal,
    interrupt: Signal,
    repeats: RepeatFilter,
    /// Never awaited. Handling SIGXFSZ turns a write beyond the file size limit into an error, like that of a full
    /// disk, instead of the end of the process.
    _too_long: Signal,
}

impl Signals {
    /// Installs handlers for the signals, which replace their default effect.
    pub(crate) fn take() -> anyhow::Result<Self> {
        let open = |kind| signal(kind).context("take over signals");
        Ok(Self {
            terminate: open(SignalKind::terminate())?,
            hangup: open(SignalKind::hangup())?,
            interrupt: open(SignalKind::interrupt())?,
            repeats: RepeatFilter::default(),
            _too_long: open(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?,
        })
    }

    /// The next signal that does not repeat the one before.
    pub(crate) async fn next(&mut self) -> Request {
        loop {
            let request = tokio::select! {
                _ = self.terminate.recv() => Request::Drain,
                _ = self.hangup.recv() => Request::Drain,
                _ = self.interrupt.recv() => Request::Cancel,
            };
            if self.repeats.counts(Instant::now()) {
                return request;
            }
        }
    }
}

/// When a signal last counted.
#[derive(Debug, Default)]
struct RepeatFilter(Option<Instant>);

impl RepeatFilter {
    /// Whether a signal at `now` counts. The time runs from the last one that counted, so a series of signals is not ignored for long.
    fn counts(&mut self, now: Instant) -> bool {
        let counts = self.0.is_none_or(|last| now.duration_since(last) >= REPEAT_WINDOW);
        if counts {
            self.0 = Some(now);
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_within_200_ms_count_as_one() {
        let (mut repeats, start) = (RepeatFilter::default(), Instant::now());
        let counted: Vec<_> =
            (0..1000).filter(|millis| repeats.counts(start + Duration::from_millis(*millis))).collect();
        assert_eq!(counted, [0, 200, 400, 600, 800]);
    }
}
