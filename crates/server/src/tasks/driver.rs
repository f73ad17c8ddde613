//! Runs a task again and again: timer or wake-up, panic boundary, and a log line when it begins to fail.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};

use crate::context::App;

/// A periodic task. It is idempotent, and each pass reads what there is to do.
pub trait Task: Send + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// One pass.
    fn run(&mut self, app: &App) -> impl Future<Output = Result<(), coder_store::Error>> + Send;
}

/// A task that says when its next pass is due. It is idempotent, and each pass reads what there is to do.
pub trait WakingTask: Send + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// One pass. Returns the longest time until the next one.
    fn run(&mut self, app: &App) -> impl Future<Output = Result<Duration, coder_store::Error>> + Send;
}

/// When the first pass starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstRun {
    /// Right after the start.
    AtOnce,
    /// After one period.
    Later,
}

/// Runs `task` every `period` until the soft stop; a pass under way is finished.
pub fn every<T: Task>(app: &App, period: Duration, first: FirstRun, mut task: T) {
    let context = app.clone();
    app.lifecycle.spawn(T::NAME, async move {
        let period = period.max(Duration::from_millis(1));
        let start = Instant::now() + if first == FirstRun::AtOnce { Duration::ZERO } else { period };
        let mut ticks = interval_at(start, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                () = context.lifecycle.soft().cancelled() => return,
                _ = ticks.tick() => {}
            }
            pass(T::NAME, &mut failing, task.run(&context)).await;
        }
    });
}

/// Between two passes of a task that is woken again and again. The first wake-up after a pause is followed at once.
const SHORTEST_PERIOD: Duration = Duration::from_millis(250);

/// Runs `task` at once, then when it asked to, when it is woken, and after a failed pass within `retry`, until the soft stop.
/// Many wake-ups in a short time lead to one pass.
pub fn when_due<T: WakingTask>(app: &App, woken: Arc<Notify>, retry: Duration, mut task: T) {
    let context = app.clone();
    app.lifecycle.spawn(T::NAME, async move {
        let mut failing = false;
        while !context.lifecycle.soft().is_cancelled() {
            let next_woken = Instant::now() + SHORTEST_PERIOD;
            let wait = pass(T::NAME, &mut failing, task.run(&context)).await.unwrap_or(retry);
            tokio::select! {
                () = context.lifecycle.soft().cancelled() => return,
                () = pause(&woken, next_woken, wait.max(Duration::from_millis(1))) => {}
            }
        }
    });
}

/// Waits until the task is woken, but not before `next_woken`, and not longer than `wait`.
async fn pause(woken: &Notify, next_woken: Instant, wait: Duration) {
    let wake_up = async {
        woken.notified().await;
        sleep_until(next_woken).await;
    };
    tokio::select! {
        () = wake_up => {}
        () = sleep(wait) => {}
    }
}

/// One pass. Each starts from the database, so one that panicked leaves no broken state in the task.
async fn pass<R>(
    name: &'static str,
    failing: &mut bool,
    run: impl Future<Output = Result<R, coder_store::Error>>,
) -> Option<R> {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(Ok(done)) => {
            *failing = false;
            return Some(done);
        }
        Ok(Err(error)) => {
            // One line until the task succeeds again.
            if !std::mem::replace(failing, true) {
                tracing::warn!(task = name, %error, "a background task failed, it will try again");
            }
        }
        Err(_) => tracing::error!(task = name, "a background task panicked, it will try again"),
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_is_woken_again_and_again_keeps_the_shortest_period() {
        let (woken, start, wait) = (Notify::new(), Instant::now(), Duration::from_secs(60));
        woken.notify_one();
        pause(&woken, start + SHORTEST_PERIOD, wait).await;
        assert_eq!(start.elapsed(), SHORTEST_PERIOD);
        // The last pass is long ago.
        woken.notify_one();
        pause(&woken, start, wait).await;
        assert_eq!(start.elapsed(), SHORTEST_PERIOD);
        // What is due sooner does not wait for it.
        woken.notify_one();
        let soon = Duration::from_millis(10);
        pause(&woken, Instant::now() + SHORTEST_PERIOD, soon).await;
        assert_eq!(start.elapsed(), SHORTEST_PERIOD + soon);
    }
}
