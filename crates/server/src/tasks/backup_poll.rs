//! Every 30 seconds one waiting daemon of each domain looks for a job: covers lost wake-ups (ACQ-6).

use super::driver::Task;
use crate::context::App;

/// The task.
pub struct BackupPoll;

impl Task for BackupPoll {
    const NAME: &'static str = "backup poll";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        app.scheduler.poll();
        Ok(())
    }
}
