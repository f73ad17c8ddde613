//! Removes uploaded files that nothing uses: no job, no version's modules, and no running import.

use coder_domain::ids::FileId;
use coder_store::files;
use jiff::SignedDuration;

use super::driver::Task;
use crate::context::App;

/// How long an unused file is kept after its upload. Creating a template version from it takes seconds.
pub const UNUSED_FOR: SignedDuration = SignedDuration::from_hours(24);
/// Files checked in one pass.
const BATCH_SIZE: i64 = 2_000;

/// The task. Each server checks all files in turn, some in each pass.
#[derive(Default)]
pub struct PurgeFiles {
    after: Option<FileId>,
}

impl Task for PurgeFiles {
    const NAME: &'static str = "purge of files";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Ok(before) = app.now().checked_sub(UNUSED_FOR) else { return Ok(()) };
        let purged = files::purge(&mut app.store.single().await?, self.after, BATCH_SIZE, before).await?;
        self.after = purged.next;
        if purged.removed > 0 {
            tracing::info!(files = purged.removed, "removed uploaded files that nothing uses");
        }
        Ok(())
    }
}
