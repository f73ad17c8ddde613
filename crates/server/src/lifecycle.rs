//! The two-stage stop and the list of running tasks. The soft stop lets work in progress finish, the hard stop drops it.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Stop signals and running tasks. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    soft: CancellationToken,
    hard: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle {
    /// A running lifecycle without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Fires when no new work may be started.
    #[must_use]
    pub const fn soft(&self) -> &CancellationToken {
        &self.soft
    }

    /// Fires when work in progress is dropped.
    #[must_use]
    pub const fn hard(&self) -> &CancellationToken {
        &self.hard
    }

    /// Runs `task` until it ends or the hard stop. A panic inside is logged.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let hard = self.hard.clone();
        // Boxed, because each layer below would hold the future twice.
        let work = AssertUnwindSafe(Box::pin(task)).catch_unwind();
        self.tasks.spawn(async move {
            if let Some(Err(_)) = hard.run_until_cancelled(work).await {
                tracing::error!(task = name, "a task panicked");
            }
        });
    }

    /// Tasks that still run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len()
    }

    /// Stops softly, waits up to `grace`, then stops hard and waits for the rest. Returns how many tasks were dropped.
    pub async fn stop(&self, grace: Duration) -> usize {
        self.soft.cancel();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_ok() {
            return 0;
        }
        let dropped = self.tasks.len();
        self.hard.cancel();
        self.tasks.wait().await;
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_soft_stop_lets_work_finish() {
        let life = Lifecycle::new();
        let (done, finished) = tokio::sync::oneshot::channel();
        life.spawn("work", async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            done.send(()).ok();
        });
        assert_eq!(life.stop(Duration::from_secs(5)).await, 0);
        assert!(finished.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hard_stop_drops_what_is_left() {
        let life = Lifecycle::new();
        life.spawn("endless", std::future::pending());
        assert_eq!(life.stop(Duration::from_secs(5)).await, 1);
        assert_eq!(life.running(), 0);
    }

    #[tokio::test]
    async fn a_panic_stays_in_its_task() {
        let life = Lifecycle::new();
        life.spawn("broken", async { panic!("on purpose") });
        assert_eq!(life.stop(Duration::from_secs(5)).await, 0);
    }
}
