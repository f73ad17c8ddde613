//! Trying again while something is away that comes back by itself.

use tokio::time::sleep;

use super::serve::TRY_AGAIN;

/// Tries until it succeeds, or fails in a way that `is_worth_it` gives up on.
pub(super) async fn while_worth_it<T, E, Attempt: Future<Output = Result<T, E>>>(
    mut attempt: impl FnMut() -> Attempt,
    mut is_worth_it: impl FnMut(&E) -> bool,
) -> Result<T, E> {
    loop {
        match attempt().await {
            Err(error) if is_worth_it(&error) => sleep(TRY_AGAIN).await,
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
        let outcome = while_worth_it(|| std::future::ready(left.next().unwrap()), |_| true).await;
        assert_eq!((outcome, left.next()), (Ok(1), Some(Ok(2))));
        let mut left = [Err("away"), Err("broken"), Ok(1)].into_iter();
        let outcome =
            while_worth_it(|| std::future::ready(left.next().unwrap()), |error| *error == "away").await;
        assert_eq!((outcome, left.next()), (Err("broken"), Some(Ok(1))));
    }
}
