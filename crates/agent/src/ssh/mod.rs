//! The SSH server on the overlay network (agent 4). Whoever reaches the port was authorized by the coordinator, so clients do not
//! authenticate.
//!
//! `handler` takes the requests of one connection, `inbox` keeps what arrives on its channels, `session` runs a program for a channel,
//! `terminal` is its terminal, `forward` carries connections, `sftp` is the file server.

mod agent_socket;
mod forward;
mod handler;
mod inbox;
mod message_of_the_day;
mod session;
mod sftp;
mod terminal;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use coder_wire::bytes::ByteStream;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{self, Config};
use russh::{Disconnect, MethodKind, MethodSet, SshId};
use sha2::{Digest as _, Sha256};

use self::handler::Handler;
pub(crate) use self::terminal::{
    Size as TerminalSize, duplicate as duplicate_terminal, resize as resize_terminal,
};
use crate::manifest::Manifest;
use crate::state::AgentState;

/// The time for the first line of a client.
const FIRST_LINE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long programs may take to end when the agent ends.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Probes of a silent client; each a third of the limit.
const KEEPALIVE_PROBES: u32 = 3;
/// Messages to the client that wait for the connection.
const QUEUED_EVENTS: usize = 64;
/// Bytes that a client may send ahead on one channel.
const WINDOW_BYTES: u32 = 2 << 20;

/// Serves SSH connections.
pub(crate) struct Server {
    state: Arc<AgentState>,
    config: Arc<Config>,
}

impl Server {
    /// The server of the agent that a manifest describes.
    pub(crate) fn new(state: Arc<AgentState>, manifest: &Manifest) -> Self {
        let config = Config {
            server_id: SshId::Standard("SSH-2.0-Coder".into()),
            methods: MethodSet::from(&[MethodKind::None][..]),
            auth_rejection_time: Duration::ZERO,
            keys: vec![host_key(manifest)],
            window_size: WINDOW_BYTES,
            event_buffer_size: QUEUED_EVENTS,
            inactivity_timeout: None,
            keepalive_interval: Some(
                (state.config.ssh_max_timeout / KEEPALIVE_PROBES).max(Duration::from_secs(1)),
            ),
            keepalive_max: KEEPALIVE_PROBES as usize,
            ..Config::default()
        };
        Self { state, config: Arc::new(config) }
    }

    /// Serves one connection to its end.
    pub(crate) async fn serve(&self, stream: impl ByteStream, from: Ipv6Addr) {
        let handler = Handler::new(Arc::clone(&self.state), IpAddr::V6(from));
        let running = server::run_stream(Arc::clone(&self.config), stream, handler);
        let session = match tokio::time::timeout(FIRST_LINE_TIMEOUT, running).await {
            Ok(Ok(session)) => session,
            Ok(Err(error)) => {
                tracing::debug!(%error, "an SSH connection could not begin");
                return;
            }
            Err(_) => {
                tracing::debug!("a client connected and did not begin with SSH");
                return;
            }
        };
        let handle = session.handle();
        tokio::pin!(session);
        let ended = tokio::select! {
            ended = &mut session => ended,
            () = self.state.sessions_end.cancelled() => {
                // The programs have been told to end; what they still print is sent.
                match tokio::time::timeout(END_TIMEOUT, &mut session).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        let text = "the workspace's agent ends".to_owned();
                        drop(handle.disconnect(Disconnect::ByApplication, text, String::new()).await);
                        return;
                    }
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "an SSH connection ended");
        }
    }
}

/// A key that is the same for every start of a workspace: clients that keep host keys would complain otherwise (agent 4.1). It proves
/// nothing; the tunnel below has proven the agent.
fn host_key(manifest: &Manifest) -> PrivateKey {
    let mut hash = Sha256::new();
    hash.update(b"coder agent host key\0");
    for part in [&manifest.owner_name, &manifest.workspace_name, &manifest.agent_name] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    PrivateKey::from(Ed25519Keypair::from_seed(&hash.finalize().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_key_depends_on_the_names_only() {
        let named =
            |workspace: &str| Manifest { workspace_name: workspace.to_owned(), ..Manifest::default() };
        let key = |manifest: &Manifest| host_key(manifest).public_key().clone();
        let other_id = Manifest { agent_id: uuid::Uuid::from_u128(5), ..named("dev") };
        assert_eq!(key(&named("dev")), key(&other_id));
        assert_ne!(key(&named("dev")), key(&named("dev2")));
    }
}
