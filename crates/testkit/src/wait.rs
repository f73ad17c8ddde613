//! Waiting in tests: for a condition, with a deadline, never for a fixed time. A panic names the missing condition.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Deadline of every wait, long enough for a busy machine.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Time between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Equal results in a row after which a value counts as settled.
const SETTLED_POLLS: u32 = 20;

/// Polls until there is a value, and returns it. Panics with `what` when there is none within [`WAIT_LIMIT`].
#[track_caller]
pub fn poll_until<T>(what: &str, mut poll: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            if let Some(found) = poll().await {
                return found;
            }
            assert!(Instant::now() < deadline, "{caller}: not within {WAIT_LIMIT:?}: {what}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Waits until `condition` holds. Panics with `what` when it does not within [`WAIT_LIMIT`].
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) -> impl Future<Output = ()> {
    poll_until(what, async move || condition().then_some(()))
}

/// Waits until the result of `poll` does not change any more, and returns it. Panics when it still changes after
/// [`WAIT_LIMIT`].
#[track_caller]
pub fn settled<T: PartialEq + Debug>(mut poll: impl FnMut() -> T) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + WAIT_LIMIT;
        let (mut last, mut same) = (poll(), 0);
        while same < SETTLED_POLLS {
            assert!(Instant::now() < deadline, "{caller}: still changing after {WAIT_LIMIT:?}: {last:?}");
            tokio::time::sleep(POLL_INTERVAL).await;
            let now = poll();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }
}
