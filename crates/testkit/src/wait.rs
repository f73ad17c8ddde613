//! Waiting in tests: for a condition, with a deadline, never for a fixed time. A panic names the missing condition.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Deadline of every wait, long enough for a busy machine.
pub const SOON: Duration = Duration::from_secs(30);
/// Time between two polls.
const INTERVAL: Duration = Duration::from_millis(2);
/// Equal results in a row after which a value counts as settled.
const SETTLED_POLLS: u32 = 20;

/// Polls until there is a value, and returns it. Panics with `what` when there is none within [`SOON`].
#[track_caller]
pub fn poll_until<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(found) = poll().await {
                return found;
            }
            assert!(Instant::now() < deadline, "{caller}: not within {SOON:?}: {what}");
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Waits until `condition` holds. Panics with `what` when it does not within [`SOON`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    poll_until(what, async move || condition().then_some(()))
}

/// Waits until the result of `poll` does not change any more, and returns it. Panics when it still changes after
/// [`SOON`].
#[track_caller]
pub fn settled<T: PartialEq + Debug>(mut poll: impl FnMut() -> T) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + SOON;
        let (mut last, mut same) = (poll(), 0);
        while same < SETTLED_POLLS {
            assert!(Instant::now() < deadline, "{caller}: still changing after {SOON:?}: {last:?}");
            tokio::time::sleep(INTERVAL).await;
            let now = poll();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }
}
