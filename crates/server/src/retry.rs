//! Retries while the database is unavailable.

use std::time::Duration;

use tokio::time::sleep;

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
}
