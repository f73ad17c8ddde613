//! How many calls one agent may make. Further ones wait, and with them the connection that they come over.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// Calls that may come at once: an agent that starts reports states, logs, apps and metadata.
const MAX_BURST: u32 = 200;
/// The time in which one more call is allowed. A busy agent sends logs and metadata once a second.
const CALL_INTERVAL: Duration = Duration::from_millis(50);

/// The pace of one connection.
#[derive(Debug)]
pub(super) struct Pace {
    /// When all calls so far are paid for.
    paid: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { paid: Mutex::new(Instant::now()) }
    }

    /// Waits until a call may be worked on.
    pub(super) async fn wait(&self) {
        let now = Instant::now();
        let turn = {
            let mut paid = self.paid.lock();
            *paid = (*paid).max(now) + CALL_INTERVAL;
            *paid - CALL_INTERVAL * MAX_BURST
        };
        if turn > now {
            sleep_until(turn).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_a_flood_waits() {
        let (pace, start) = (Pace::new(), Instant::now());
        for _ in 0..MAX_BURST {
            pace.wait().await;
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            pace.wait().await;
        }
        assert!(start.elapsed() >= CALL_INTERVAL * 99, "{:?}", start.elapsed());
    }
}
