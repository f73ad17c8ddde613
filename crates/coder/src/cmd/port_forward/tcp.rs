//! A TCP port of this machine that leads to one of the workspace.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional_with_sizes};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::network::AgentConnection;

/// Bytes that are copied at once, in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// Connections at once. Further ones wait in the system's queue.
const MAX_CONNECTIONS: usize = 1024;
/// The pause after an error of the listener, such as too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Serves a listener until the node ends.
pub(super) async fn serve(
    connection: Arc<AgentConnection>,
    listener: TcpListener,
    port: u16,
) -> anyhow::Result<()> {
    let mut open = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if open.len() < MAX_CONNECTIONS => match accepted {
                Ok((local, _)) => {
                    let connection = Arc::clone(&connection);
                    open.spawn(async move {
                        if let Err(error) = carry(&connection, local, port).await {
                            tracing::debug!(error = %format!("{error:#}"), port, "a forwarded connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            },
            Some(_) = open.join_next() => {}
        }
    }
}

async fn carry(connection: &AgentConnection, mut local: TcpStream, port: u16) -> anyhow::Result<()> {
    local.set_nodelay(true).context("set up the local connection")?;
    let mut remote = match connection.connect(port).await {
        Ok(remote) => remote,
        Err(error) => {
            // Nothing listens there: the local program sees a reset, and not an orderly end.
            local.set_zero_linger().context("reset the local connection")?;
            return Err(error);
        }
    };
    let copied = copy_bidirectional_with_sizes(&mut local, &mut remote, BUFFER_BYTES, BUFFER_BYTES).await;
    if copied.is_err() {
        // Whichever side failed, the other must not take it for an end.
        remote.abort();
        local.set_zero_linger().context("reset the local connection")?;
    }
    copied.context("carry a connection")?;
    // Both directions have ended.
    local.shutdown().await.context("end the local connection")?;
    let _ = local.read(&mut [0]).await;
    Ok(())
}
