//! The agent's node in the overlay network, and who serves its ports (agent 3.8).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use coder_tailnet::controller::{Controller, Error as ControllerError};
use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::map::EMBEDDED_REGION;
use coder_tailnet::node::{self, BoxedFuture, Config, Dialer, Listener, Node, PingKind};
use coder_tailnet::peer::Role;
use coder_tailnet::rpc;
use coder_wire::bytes::BoxedStream;
use coder_wire::drpc::Error;
use parking_lot::RwLock;
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::calls::Calls;
use crate::listening_ports::ListeningPorts;
use crate::manifest::Manifest;
use crate::pty::Terminals;
use crate::state::AgentState;
use crate::transport::Transport;
use crate::{forward, http_api, pty, speed_test, ssh};

/// Requests and responses of the coordinator that wait.
const COORDINATE_QUEUE: usize = 64;

/// Ports of the agent itself.
mod port {
    pub(super) const SSH: [u16; 2] = [1, 22];
    pub(super) const RECONNECTING_PTY: u16 = 2;
    pub(super) const SPEED_TEST: u16 = 3;
    pub(super) const HTTP_API: u16 = 4;
}

/// Finds relays in the newest map.
struct Relays {
    transport: Arc<dyn Transport>,
    map: RwLock<DerpMap>,
    forces_websocket: bool,
}

impl Relays {
    fn set_map(&self, mut map: DerpMap) {
        map.rewrite(&self.transport.server());
        *self.map.write() = map;
    }
}

impl Dialer for Relays {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        let relay = {
            let map = self.map.read();
            let is_embedded = map.regions.get(&region.into()).is_some_and(|region| region.embedded_relay);
            map.relay(region.into()).cloned().map(|node| (node, is_embedded))
        };
        Box::pin(async move {
            let (node, is_embedded) = relay.ok_or_else(|| {
                io::Error::new(io::ErrorKind::NotFound, format!("region {region} has no relay"))
            })?;
            self.transport.relay(node, is_embedded, self.forces_websocket).await
        })
    }
}

/// The node with its controller. It exists from the first manifest on.
pub(crate) struct Network {
    pub(crate) node: Node,
    controller: Mutex<Controller>,
    relays: Arc<Relays>,
    /// Serve the ports; they end with the network.
    _servers: JoinSet<()>,
}

impl Network {
    /// Starts the node and serves its ports.
    pub(crate) fn start(
        state: &Arc<AgentState>,
        manifest: &Manifest,
        transport: Arc<dyn Transport>,
    ) -> Result<Self, node::Error> {
        let relays = Arc::new(Relays {
            transport,
            map: RwLock::default(),
            forces_websocket: manifest.force_websockets,
        });
        relays.set_map(manifest.derp_map.clone());
        let home = relays.map.read().home().unwrap_or(EMBEDDED_REGION);
        let home = i32::try_from(home).unwrap_or(i32::MAX);
        let node = Node::start(Config::agent(manifest.agent_id, home, Arc::<Relays>::clone(&relays)));
        let mut servers = JoinSet::new();
        let ssh = Arc::new(ssh::Server::new(Arc::clone(state), manifest));
        for port in port::SSH {
            let (ssh, listener) = (Arc::clone(&ssh), node.listen(port)?);
            servers.spawn(accept(listener, move |stream| {
                let ssh = Arc::clone(&ssh);
                async move {
                    let from = stream.peer_addr();
                    ssh.serve(stream, *from.ip()).await;
                }
            }));
        }
        let terminals = Arc::new(Terminals::new(Arc::clone(state)));
        servers.spawn(accept(node.listen(port::RECONNECTING_PTY)?, move |stream| {
            let terminals = Arc::clone(&terminals);
            async move {
                let from = *stream.peer_addr().ip();
                pty::serve(&terminals, stream, from).await;
            }
        }));
        servers.spawn(accept(node.listen(port::SPEED_TEST)?, speed_test::serve));
        let (api_state, ports) = (Arc::clone(state), Arc::new(ListeningPorts::default()));
        servers.spawn(accept(node.listen(port::HTTP_API)?, move |stream| {
            http_api::serve(Arc::clone(&api_state), Arc::clone(&ports), stream)
        }));
        servers.spawn(forward::tcp(node.listen_any()?));
        servers.spawn(forward::udp(node.bind_udp_any()?));
        let controller = Mutex::new(Controller::new(node.clone(), Role::Agent));
        Ok(Self { node, controller, relays, _servers: servers })
    }

    pub(crate) fn set_relays(&self, map: DerpMap) {
        self.relays.set_map(map);
    }

    /// Follows the relays of the server over one connection until it fails.
    pub(crate) async fn follow_relays(&self, calls: &Calls) -> Result<(), Error> {
        rpc::derp_maps(calls.open().await?, |map| self.set_relays(map)).await?;
        Err(Error::NoAnswer)
    }

    /// Follows the coordinator over one connection until it fails, or until `stop`, which disconnects the agent.
    pub(crate) async fn coordinate(&self, calls: &Calls, stop: &CancellationToken) -> Result<(), Error> {
        let mut controller = self.controller.lock().await;
        let (requests, outgoing) = mpsc::channel(COORDINATE_QUEUE);
        let (incoming, mut responses) = mpsc::channel(COORDINATE_QUEUE);
        let call = rpc::coordinate(calls.open().await?, outgoing, incoming);
        tokio::pin!(call);
        tokio::select! {
            ended = &mut call => return ended.and(Err(Error::NoAnswer)),
            ended = controller.run(&requests, &mut responses) => {
                if let Err(error @ ControllerError::Refused(_)) = ended {
                    tracing::warn!(%error, "the coordinator ended the connection");
                }
                return Err(Error::NoAnswer);
            }
            () = stop.cancelled() => {}
        }
        let (_, ended) = tokio::join!(controller.disconnect(&requests, &mut responses), &mut call);
        ended
    }

    /// Forgets peers that were lost for too long, while there is no connection.
    pub(crate) async fn tick(&self) {
        self.controller.lock().await.tick();
    }

    /// The median of the latencies to peers with connections; none without any.
    pub(crate) async fn median_latency(&self) -> Option<Duration> {
        const PEERS: usize = 16;
        const TIMEOUT: Duration = Duration::from_secs(5);
        let traffic = self.node.all_traffic();
        let addresses =
            traffic.iter().filter(|peer| peer.connections > 0).filter_map(|peer| peer.address).take(PEERS);
        let mut pings = JoinSet::new();
        for address in addresses {
            let node = self.node.clone();
            pings.spawn(async move { node.ping(address, PingKind::Disco, TIMEOUT).await });
        }
        let mut latencies: Vec<_> =
            pings.join_all().await.into_iter().filter_map(|pong| Some(pong.ok()?.latency)).collect();
        latencies.sort_unstable();
        latencies.get(latencies.len() / 2).copied()
    }
}

/// Serves each connection of a listener in a task of its own. The tasks end with this future.
async fn accept<F: Future<Output = ()> + Send + 'static>(
    mut listener: Listener,
    serve: impl Fn(node::TcpStream) -> F,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            stream = listener.accept() => match stream {
                Some(stream) => drop(tasks.spawn(serve(stream))),
                None => return,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
}
