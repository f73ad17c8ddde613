//! Waiting in tests: for a condition, with a deadline, never for a fixed time. Whoever waits is told what did not come.

use std::fmt::Debug;
use std::panic::Location;
use std::time::{Duration, Instant};

/// Everything that is expected happens within this time, on a busy machine too.
pub const SOON: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(2);
/// So many looks in a row must see the same before it counts as settled.
const LOOKS: u32 = 20;

/// Looks until there is something, and returns it. Panics with `what` when there is nothing within [`SOON`].
#[track_caller]
pub fn found<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(found) = look().await {
                return found;
            }
            assert!(Instant::now() < deadline, "{caller}: not within {SOON:?}: {what}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Waits until `is_so`. Panics with `what` when it is not within [`SOON`].
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) -> impl Future<Output = ()> {
    found(what, async move || is_so().then_some(()))
}

/// Waits until what `look` sees does not change any more, and returns it. Panics when it has not come to rest within
/// [`SOON`].
#[track_caller]
pub fn settled<T: PartialEq + Debug>(mut look: impl FnMut() -> T) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let deadline = Instant::now() + SOON;
        let (mut last, mut same) = (look(), 0);
        while same < LOOKS {
            assert!(Instant::now() < deadline, "{caller}: still changing after {SOON:?}: {last:?}");
            tokio::time::sleep(PAUSE).await;
            let now = look();
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
        last
    }
}
