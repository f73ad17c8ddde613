//! The loop that waits for an unavailable database.

use std::time::Duration;

use coder_domain::backoff::Backoff;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::lifecycle::Lifecycle;

/// Time between two attempts.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);

const FIXED_DELAYS: Backoff = Backoff::new(RETRY_AFTER, RETRY_AFTER);

/// Repeats `attempt` until it succeeds, or fails with an error for which `is_worth_it` is false.
pub(crate) async fn retry_while<T, E, Attempt: Future<Output = Result<T, E>>>(
    attempt: impl FnMut() -> Attempt,
    is_worth_it: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    let never = CancellationToken::new();
    repeat(&never, FIXED_DELAYS, attempt, is_worth_it).await.expect("nothing cancels the token")
}

/// Like [`retry_while`], until the soft stop. The first attempt is made in any case. Returns `None` when the stop comes before
/// another attempt.
pub(crate) async fn retry_until_stop<T, E, Attempt: Future<Output = Result<T, E>>>(
    lifecycle: &Lifecycle,
    attempt: impl FnMut() -> Attempt,
    is_worth_it: impl FnMut(&E) -> bool,
) -> Option<Result<T, E>> {
    repeat(lifecycle.soft(), FIXED_DELAYS, attempt, is_worth_it).await
}

/// Like [`retry_until_stop`], with growing delays: for background work that may fail for a long time.
pub(crate) async fn retry_with_backoff<T, E, Attempt: Future<Output = Result<T, E>>>(
    lifecycle: &Lifecycle,
    delays: Backoff,
    attempt: impl FnMut() -> Attempt,
    is_worth_it: impl FnMut(&E) -> bool,
) -> Option<Result<T, E>> {
    repeat(lifecycle.soft(), delays, attempt, is_worth_it).await
}

async fn repeat<T, E, Attempt: Future<Output = Result<T, E>>>(
    stop: &CancellationToken,
    mut delays: Backoff,
    mut attempt: impl FnMut() -> Attempt,
    mut is_worth_it: impl FnMut(&E) -> bool,
) -> Option<Result<T, E>> {
    loop {
        match attempt().await {
            Err(error) if is_worth_it(&error) => {
                stop.run_until_cancelled(sleep(delays.next_delay())).await?;
            }
            outcome => return Some(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_errors_that_are_worth_it_are_retried() {
        let mut left = [Err("away"), Err("away"), Ok(1), Ok(2)].into_iter();
        let outcome = retry_while(|| std::future::ready(left.next().unwrap()), |_| true).await;
        assert_eq!((outcome, left.next()), (Ok(1), Some(Ok(2))));
        let mut left = [Err("away"), Err("broken"), Ok(1)].into_iter();
        let outcome =
            retry_while(|| std::future::ready(left.next().unwrap()), |error| *error == "away").await;
        assert_eq!((outcome, left.next()), (Err("broken"), Some(Ok(1))));
    }

    #[tokio::test(start_paused = true)]
    async fn stop_ends_retries_but_not_the_first_attempt() {
        let lifecycle = Lifecycle::new();
        lifecycle.stop(Duration::ZERO).await;
        let mut attempts = 0;
        let mut fail = |fails: bool| {
            attempts += 1;
            std::future::ready(if fails { Err("unavailable") } else { Ok(()) })
        };
        assert_eq!(retry_until_stop(&lifecycle, || fail(true), |_| true).await, None);
        assert_eq!(retry_until_stop(&lifecycle, || fail(false), |_| true).await, Some(Ok(())));
        assert_eq!(attempts, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn delays_grow_with_a_backoff() {
        let started = tokio::time::Instant::now();
        let mut left = [Err("unavailable"), Err("unavailable"), Ok(())].into_iter();
        let delays = Backoff::new(Duration::from_secs(10), Duration::from_secs(1000));
        let attempt = || std::future::ready(left.next().unwrap());
        assert_eq!(retry_with_backoff(&Lifecycle::new(), delays, attempt, |_| true).await, Some(Ok(())));
        assert_eq!(started.elapsed().as_secs(), 26, "10 s and 16.18 s");
    }
}
