//! The end of the process that started this one: it holds the other end of the pipe that is this process's standard input, and the
//! system closes that when the process ends, even if it is killed.

use anyhow::Context as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;

/// The standard input, if it is to be watched (`--end-with-stdin`).
pub(crate) struct ParentPipe(Option<Receiver>);

impl ParentPipe {
    /// Takes over the standard input, which must be a pipe, when it is `wanted`.
    pub(crate) fn open(wanted: bool) -> anyhow::Result<Self> {
        if !wanted {
            return Ok(Self(None));
        }
        let pipe = rustix::io::dup(std::io::stdin()).context("take over the standard input")?;
        let receiver =
            Receiver::from_owned_fd(pipe).context("--end-with-stdin needs a pipe as standard input")?;
        Ok(Self(Some(receiver)))
    }

    /// Waits for the end of the other process. Never returns when the input is not watched.
    pub(crate) async fn closed(&mut self) {
        let Some(input) = &mut self.0 else { return std::future::pending().await };
        let mut ignored = [0; 64];
        // An error also counts as the end.
        while input.read(&mut ignored).await.is_ok_and(|bytes| bytes > 0) {}
    }
}
