//! Every second one look whether jobs wait that a daemon waiting here could take: covers lost wake-ups (ACQ-6).

use super::driver::Task;
use crate::context::App;

/// The task.
pub struct BackupPoll;

impl Task for BackupPoll {
    const NAME: &'static str = "backup poll";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        app.scheduler.look().await
    }
}
