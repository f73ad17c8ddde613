//! Gives memory back to the operating system once large requests have ended: an allocator keeps what was freed in pieces.

use super::driver::Task;
use crate::context::App;

/// After requests that took more than this.
const MUCH: usize = 8 << 20;
/// Passes after which memory is given back in any case: connections take some that no request counts.
const PASSES: u32 = 12;

/// The task.
#[derive(Default)]
pub(super) struct ReleaseMemory {
    /// Much was taken since memory was given back last.
    is_due: bool,
    passes: u32,
}

impl Task for ReleaseMemory {
    const NAME: &'static str = "release of memory";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Some(release) = app.config.limits.release_memory else { return Ok(()) };
        let (memory, disk) = app.memory.take_peaks();
        self.passes += 1;
        self.is_due |= memory.max(disk) > MUCH || self.passes >= PASSES;
        if self.is_due {
            // Looking through all free memory takes a moment.
            if tokio::task::spawn_blocking(release).await.is_ok() {
                (self.is_due, self.passes) = (app.memory.used() > MUCH, 0);
            }
        }
        Ok(())
    }
}
