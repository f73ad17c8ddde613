//! Retries while the database is unavailable.

use std::time::Duration;

use tokio::time::sleep;

use crate::lifecycle::Lifecycle;

/// Time between two attempts.
pub(crate) const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Repeats `attempt` until it succeeds, or fails with an error for which `is_worth_it` is false.
pub(crate) async fn retry_while<T, E, Attempt: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut() -> Attempt,
    mut is_worth_it: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    loop {
        match attempt().await {
            Err(error) if is_worth_it(&error) => sleep(RETRY_AFTER).await,
            outcome => return outcome,
        }
    }
}

/// As [`retry_while`], until the soft stop. The first attempt is made in any case; `None` when the stop came before another
/// one.
pub(crate) async fn retry_until_stop<T, E, Attempt: Future<Output = Result<T, E>>>(
    lifecycle: &Lifecycle,
    mut attempt: impl FnMut() -> Attempt,
    mut is_worth_it: impl FnMut(&E) -> bool,
) -> Option<Result<T, E>> {
    loop {
        match attempt().await {
            Err(error) if is_worth_it(&error) => tokio::select! {
                () = lifecycle.soft().cancelled() => return None,
                () = sleep(RETRY_AFTER) => {}
            },
            outcome => return Some(outcome),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_worth_it_is_tried_again_and_nothing_else() {
        let mut left = [Err("away"), Err("away"), Ok(1), Ok(2)].into_iter();
        let outcome = retry_while(|| std::future::ready(left.next().unwrap()), |_| true).await;
        assert_eq!((outcome, left.next()), (Ok(1), Some(Ok(2))));
        let mut left = [Err("away"), Err("broken"), Ok(1)].into_iter();
        let outcome =
            retry_while(|| std::future::ready(left.next().unwrap()), |error| *error == "away").await;
        assert_eq!((outcome, left.next()), (Err("broken"), Some(Ok(1))));
    }

    #[tokio::test(start_paused = true)]
    async fn the_stop_ends_retries_but_not_the_first_attempt() {
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
}
