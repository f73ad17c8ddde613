//! A UDP port of this machine that leads to one of the workspace. Each sender has a port of its own inside the tunnel.

use std::collections::HashMap;
use std::net::{SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coder_tailnet::address;
use coder_tailnet::node::{Node, UDP_TEXT, UdpSocket as TunnelSocket};
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::network::AgentConnection;

/// After this time without a datagram a sender's port is free again.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Senders at once; datagrams of further ones are dropped.
const MAX_SENDERS: usize = 1024;
/// Datagrams that wait for one sender's task.
const MAX_QUEUED_DATAGRAMS: usize = 64;
/// The ports that are taken inside the tunnel.
const FIRST_PORT: u16 = 32768;
const PORT_COUNT: u16 = 28000;

struct Sender {
    datagrams: mpsc::Sender<Vec<u8>>,
}

/// Serves a socket until it fails.
pub(super) async fn serve(
    connection: Arc<AgentConnection>,
    socket: UdpSocket,
    port: u16,
) -> anyhow::Result<()> {
    let socket = Arc::new(socket);
    let to = SocketAddrV6::new(address::of(connection.agent().0), port, 0, 0);
    let mut senders: HashMap<SocketAddr, Sender> = HashMap::new();
    let mut buffer = vec![0; 64 << 10];
    let mut next = 0_u16;
    loop {
        let (count, from) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // A datagram that was sent before could not be delivered.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error).context("receive datagrams"),
        };
        if count > UDP_TEXT {
            tracing::debug!(count, limit = UDP_TEXT, "a datagram is too long for the tunnel, it is dropped");
            continue;
        }
        senders.retain(|_, sender| !sender.datagrams.is_closed());
        let datagram = buffer[..count].to_vec();
        if let Some(sender) = senders.get(&from) {
            // As any queue of datagrams, a full one drops.
            let _ = sender.datagrams.try_send(datagram);
            continue;
        }
        if senders.len() >= MAX_SENDERS {
            continue;
        }
        let Some(tunnel) = bind(connection.node(), &mut next) else { continue };
        let (datagrams, receiver) = mpsc::channel(MAX_QUEUED_DATAGRAMS);
        let _ = datagrams.try_send(datagram);
        senders.insert(from, Sender { datagrams });
        tokio::spawn(carry(Arc::clone(&connection), Arc::clone(&socket), from, to, tunnel, receiver));
    }
}

/// A free port of the node.
fn bind(node: &Node, next: &mut u16) -> Option<(TunnelSocket, u16)> {
    (0..PORT_COUNT).find_map(|_| {
        let port = FIRST_PORT + *next;
        *next = (*next + 1) % PORT_COUNT;
        node.bind_udp(port).ok().map(|socket| (socket, port))
    })
}

/// Carries the datagrams of one sender, until none comes for a while.
async fn carry(
    connection: Arc<AgentConnection>,
    socket: Arc<UdpSocket>,
    from: SocketAddr,
    to: SocketAddrV6,
    (mut tunnel, port): (TunnelSocket, u16),
    mut datagrams: mpsc::Receiver<Vec<u8>>,
) {
    let mut last = Instant::now();
    loop {
        let left = IDLE_TIMEOUT.saturating_sub(last.elapsed());
        let moved = timeout(left, async {
            tokio::select! {
                datagram = datagrams.recv() => {
                    let Some(datagram) = datagram else { return false };
                    let Some(source) = connection.node().source_for(*to.ip()) else { return true };
                    let source = SocketAddrV6::new(source, port, 0, 0);
                    if let Err(error) = tunnel.send(source, to, &datagram) {
                        tracing::debug!(%error, "a datagram was not sent");
                    }
                    true
                }
                answer = tunnel.recv() => {
                    let Some(answer) = answer else { return false };
                    // Only the port that was asked may answer.
                    if answer.source == to && let Err(error) = socket.send_to(&answer.text, from).await {
                        tracing::debug!(%error, "an answer was not delivered");
                    }
                    true
                }
            }
        });
        match moved.await {
            Ok(true) => last = Instant::now(),
            Ok(false) | Err(_) => return,
        }
    }
}
