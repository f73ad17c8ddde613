//! Every second one look whether jobs wait that a daemon waiting here could take (ACQ-6), and on Postgres one at what other
//! servers wrote down: covers lost wake-ups.

use coder_store::changes;

use super::driver::Task;
use super::replicas;
use crate::context::App;
use crate::events::hint::Hint;

/// Most that is read in one pass.
const CHANGES: i64 = 500;

/// The task.
#[derive(Debug, Default)]
pub struct BackupPoll {
    /// Up to where it was read; none while nobody is connected.
    position: Option<i64>,
}

impl Task for BackupPoll {
    const NAME: &'static str = "backup poll";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        app.scheduler.look().await?;
        self.read_changes(app).await
    }
}

impl BackupPoll {
    async fn read_changes(&mut self, app: &App) -> Result<(), coder_store::Error> {
        if !app.store.is_postgres() || app.scheduler.connected().is_empty() {
            self.position = None;
            return Ok(());
        }
        let mut tx = app.store.reader().await?;
        let Some(position) = self.position else {
            let last = changes::find_last(&mut tx).await?;
            drop(tx);
            // Whoever joined before this looked at what was true then.
            replicas::look_at_everything(app).await?;
            self.position = Some(last);
            return Ok(());
        };
        let new = changes::list_since(&mut tx, position, CHANGES).await?;
        drop(tx);
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        if first.position == position + 1 {
            let hints: Vec<_> = new.iter().filter_map(|change| Hint::read(&change.hint)).collect();
            replicas::heed(app, &hints).await?;
        } else {
            // This server was away for so long that some are gone.
            replicas::look_at_everything(app).await?;
        }
        self.position = Some(last.position);
        Ok(())
    }
}
