//! Reads what a program prints on its terminal.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::sync::CancellationToken;

/// After the program's end: silence that means that its terminal has nothing more, and bytes that others may still print there.
const IDLE_TIME: Duration = Duration::from_millis(50);
const MAX_REST_BYTES: usize = 1 << 20;

/// The output of a terminal.
pub(crate) struct TerminalOutput<R> {
    from: R,
    exited: CancellationToken,
    rest: usize,
}

impl<R: AsyncRead + Unpin> TerminalOutput<R> {
    /// `exited` fires when the program has ended.
    pub(crate) const fn new(from: R, exited: CancellationToken) -> Self {
        Self { from, exited, rest: MAX_REST_BYTES }
    }

    /// Reads the next bytes; none at the end. After the program's end, processes in the background may keep the terminal
    /// open; what the program itself has printed is there then.
    pub(crate) async fn read(&mut self, buffer: &mut [u8]) -> Option<usize> {
        let idle = async {
            self.exited.cancelled().await;
            tokio::time::sleep(IDLE_TIME).await;
        };
        let count = tokio::select! {
            biased;
            // An error means that no process has it open any more.
            read = self.from.read(buffer) => read.ok().filter(|count| *count > 0)?,
            () = idle => return None,
        };
        if self.exited.is_cancelled() {
            self.rest = self.rest.checked_sub(count)?;
        }
        Some(count)
    }
}
