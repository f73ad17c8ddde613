//! The socket through which programs reach the SSH agent of the user's machine.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use russh::server::Handle;
use tokio::net::UnixListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::inbox::Inboxes;
use crate::forward::copy;

/// The socket. It ends when it is dropped, or with the connection.
pub(super) struct AgentSocket {
    path: PathBuf,
    _directory: tempfile::TempDir,
    _end: DropGuard,
}

impl AgentSocket {
    /// Listens in a directory that only this user may enter.
    pub(super) fn open(
        handle: Handle,
        inboxes: Inboxes,
        connection_ended: CancellationToken,
    ) -> io::Result<Self> {
        let private = Permissions::from_mode(0o700);
        let directory = tempfile::Builder::new().prefix("coder-agent-").permissions(private).tempdir()?;
        let path = directory.path().join("listener.sock");
        let listener = UnixListener::bind(&path)?;
        let stop = connection_ended.child_token();
        let end = stop.clone().drop_guard();
        tokio::spawn(async move {
            let accept = async {
                while let Ok((stream, _)) = listener.accept().await {
                    let (handle, inboxes, stop) = (handle.clone(), inboxes.clone(), stop.clone());
                    tokio::spawn(async move {
                        let work = async {
                            if let Ok(channel) = handle.channel_open_agent().await
                                && let Err(error) =
                                    copy(inboxes.stream(channel, handle.clone()), stream).await
                            {
                                tracing::debug!(%error, "a connection to the forwarded SSH agent broke");
                            }
                        };
                        stop.run_until_cancelled(work).await;
                    });
                }
            };
            stop.run_until_cancelled(accept).await;
        });
        Ok(Self { path, _directory: directory, _end: end })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
