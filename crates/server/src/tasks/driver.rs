//! Runs a task again and again: timer, panic boundary, and a log line when it begins to fail.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::context::App;

/// A periodic task. It is idempotent, and each pass reads what there is to do.
pub trait Task: Send + 'static {
    /// Its name in the log.
    const NAME: &'static str;

    /// One pass.
    fn run(&mut self, app: &App) -> impl Future<Output = Result<(), coder_store::Error>> + Send;
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
            // Each pass starts from the database, so a pass that panicked leaves no broken state in the task.
            match AssertUnwindSafe(task.run(&context)).catch_unwind().await {
                Ok(Ok(())) => failing = false,
                Ok(Err(error)) => {
                    // One line until the task succeeds again.
                    if !std::mem::replace(&mut failing, true) {
                        tracing::warn!(task = T::NAME, %error, "a background task failed, it will try again");
                    }
                }
                Err(_) => tracing::error!(task = T::NAME, "a background task panicked, it will try again"),
            }
        }
    });
}
