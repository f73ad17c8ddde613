//! Returns freed memory to the operating system after large requests. The allocator keeps it otherwise.

use super::driver::Task;
use crate::context::App;

/// Requests that reserved more than this are large.
const LARGE_BYTES: usize = 8 << 20;
/// Passes after which memory is returned in any case: connections take some that no request accounts for.
const MAX_PASSES: u32 = 12;

/// The task.
#[derive(Default)]
pub(super) struct ReleaseMemory {
    /// A large request ran since memory was returned.
    is_due: bool,
    passes: u32,
}

impl Task for ReleaseMemory {
    const NAME: &'static str = "release of memory";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Some(release) = app.config.limits.release_memory else { return Ok(()) };
        let (memory, disk) = app.memory.take_peaks();
        self.passes += 1;
        self.is_due |= memory.max(disk) > LARGE_BYTES || self.passes >= MAX_PASSES;
        if self.is_due {
            // Walking all free memory blocks the thread for a moment.
            if tokio::task::spawn_blocking(release).await.is_ok() {
                (self.is_due, self.passes) = (app.memory.used() > LARGE_BYTES, 0);
            }
        }
        Ok(())
    }
}
