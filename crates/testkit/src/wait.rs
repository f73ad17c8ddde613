//! Waiting in tests: for a condition, with a deadline, never for a fixed time. A panic names the missing condition.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Deadline of every wait, long enough for a busy machine.
pub const WAIT_LIMIT: Duration = Duration::from_secs(30);
/// Time between two polls of a value that should settle, and between the first two polls of everything else.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The time between two polls grows up to this, since a poll may be a request to a busy server.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Equal results in a row after which a value counts as settled.
const SETTLED_POLLS: u32 = 20;

/// Polls until there is a value, and returns it. Panics with `what` when there is none within [`WAIT_LIMIT`].
#[track_caller]
pub fn poll_until<T>(what: &str, poll: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let found = poll_within(WAIT_LIMIT, poll).await;
        found.unwrap_or_else(|| panic!("{caller}: not within {WAIT_LIMIT:?}: {what}"))
    }
}

/// Polls until there is a value; none when there is none within `limit`. For waits with another limit or with more to say about
/// a failure than [`poll_until`].
pub async fn poll_within<T>(limit: Duration, mut poll: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + limit;
    let mut interval = POLL_INTERVAL;
    loop {
        if let Some(found) = poll().await {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        tokio::time::sleep(interval).await;
        interval = (interval * 2).min(MAX_POLL_INTERVAL);
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
