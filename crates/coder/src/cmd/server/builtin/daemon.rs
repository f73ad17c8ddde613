//! A daemon inside the server: it joins without a socket, can be drained alone, and ends the jobs of a killed server
//! process in its cache directory.

use std::path::Path;
use std::sync::Arc;

use coder_domain::key::Sha256Digest;
use coder_domain::protocol;
use coder_provisioner::{ConnectError, ConnectFuture, Connector, Daemon, Shutdown, Stop, Transport};
use coder_server::Handle;
use coder_server::builtin::Builtin;
use tokio::sync::Notify;

use super::sessions::Sessions;

/// One built-in daemon.
pub(super) struct BuiltinDaemon {
    joining: BuiltinConnector,
    /// The sessions of its cache directory, with those of ended processes; none when another server uses the directory.
    sessions: Option<(Sessions, Vec<Sha256Digest>)>,
}

impl BuiltinDaemon {
    /// Records the daemon's session in its cache directory, before it can get a job.
    pub(super) fn new(handle: &Handle, index: u32, dir: &Path) -> Self {
        let builtin = handle.builtin(index);
        // Another server on this machine may use the directory. The daemon reports that.
        let sessions = Sessions::take(dir, builtin.session()).unwrap_or_else(|error| {
            tracing::warn!(target: "provisioner", dir = %dir.display(), %error, "a built-in daemon cannot write to its cache directory");
            None
        });
        Self {
            joining: BuiltinConnector { handle: handle.clone(), builtin, ready: Arc::default() },
            sessions,
        }
    }

    /// What joins.
    pub(super) fn connector(&self) -> impl Connector + use<> {
        self.joining.clone()
    }

    /// Runs the daemon, which can be drained alone and stops with the others.
    pub(super) async fn run(self, daemon: Daemon, all: Shutdown) {
        let Self { joining, mut sessions } = self;
        let own = Shutdown::new();
        let follow = async {
            for stop in [Stop::Drain, Stop::Cancel, Stop::Force, Stop::Kill] {
                all.reached(stop).await;
                own.stop(stop);
            }
            std::future::pending::<()>().await;
        };
        let clear = async {
            if let Some((sessions, former)) = &mut sessions {
                clear(&joining, sessions, former).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = daemon.run(own.clone()) => match ended {
                Ok(()) => tracing::debug!(target: "provisioner", daemon = ?joining.builtin, "a built-in daemon has left"),
                Err(error) => {
                    tracing::error!(target: "provisioner", daemon = ?joining.builtin, %error, "a built-in daemon ended");
                }
            },
            () = follow => {}
            () = clear => {}
        }
        // Only now may another process have the directory.
        drop(sessions);
    }
}

/// Ends the jobs that killed server processes had started in the directory.
async fn clear(joining: &BuiltinConnector, sessions: &mut Sessions, former: &[Sha256Digest]) {
    // From here on no process uses the directory any more.
    joining.ready.notified().await;
    if let Err(error) = joining.handle.end_builtin_jobs(former).await {
        tracing::warn!(target: "provisioner", %error, "jobs of an earlier process of the server end a little later");
        return;
    }
    if let Err(error) = sessions.forget_others(joining.builtin.session()) {
        tracing::warn!(target: "provisioner", %error, "the list of earlier sessions cannot be cleared");
    }
}

/// What joins without a socket.
#[derive(Clone)]
struct BuiltinConnector {
    handle: Handle,
    builtin: Builtin,
    /// Fires at the first join: the daemon has locked its directory and has ended the processes in it.
    ready: Arc<Notify>,
}

impl Connector for BuiltinConnector {
    fn connect(&self) -> ConnectFuture<'_> {
        Box::pin(async move {
            let joined = self.handle.connect_builtin(&self.builtin).await;
            let (stream, extensions) = joined.map_err(|error| ConnectError::Retry(error.to_string()))?;
            self.ready.notify_one();
            Ok(Transport { stream: Box::new(stream), extensions, protocol: protocol::CURRENT })
        })
    }
}
