//! The server's own node: how the server itself reaches ports of agents, for apps and web terminals (docs/network.md).
//!
//! There is one node for all agents. It starts with the first connection, is connected to the server's own relay through
//! memory, and forgets agents that were not used for a while. Whether a person may reach an agent is decided before.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::SocketAddrV6;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_domain::ids::{AgentId, UserId};
use coder_tailnet::address;
use coder_tailnet::controller::{Controller, Handle};
use coder_tailnet::coordinator::Authorization;
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::map::EMBEDDED_REGION;
use coder_tailnet::node::{self, BoxedFuture, Config, Dialer, Node, TcpStream};
use coder_tailnet::peer::Role;
use coder_wire::bytes::BoxedStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

/// How long an agent may take to answer in the tunnel.
const REACHABLE_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a port of a reachable agent may take to accept.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes that wait in memory between this node and the relay, in each direction.
const PIPE_BYTES: usize = 256 << 10;
/// Bytes that may wait in each direction of one connection, and of one that is over the limit for those.
const TCP_BUFFER: usize = 256 << 10;
const SMALL_TCP_BUFFER: usize = 32 << 10;
/// Requests to the coordinator that wait.
const QUEUED_REQUESTS: usize = 64;
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);

/// What the node may hold.
#[derive(Clone, Copy, Debug)]
pub struct NodeLimits {
    /// Agents that it knows at once.
    pub agents: usize,
    /// Connections to one agent.
    pub agent_connections: usize,
    /// Connections to all agents. The workspaces of one owner have at most half of them, those of two a third each, and so on.
    pub connections: usize,
    /// Connections with large buffers to all agents, and to those of one owner. They are the fast ones.
    pub fast: usize,
    pub owner_fast: usize,
    /// An agent without connections is forgotten after this.
    pub idle: Duration,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            agents: 4096,
            agent_connections: 256,
            connections: 4096,
            fast: 256,
            owner_fast: 32,
            idle: Duration::from_secs(30 * 60),
        }
    }
}

/// Why a port of an agent cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    #[error("the server has too many connections to agents; try again in a moment")]
    TooManyConnections,
    #[error("this agent has too many connections from the server; close some of its apps and terminals")]
    AgentTooBusy,
    #[error(
        "the workspaces of this owner have too many connections from the server; close some of their apps and terminals"
    )]
    OwnerTooBusy,
    #[error("the agent does not answer: it may be offline, or its network may block the server")]
    Unreachable(#[source] node::Error),
    #[error("nothing listens on port {0} in the workspace")]
    Refused(u16, #[source] node::Error),
    #[error("port {0} in the workspace does not answer")]
    Silent(u16),
}

/// The node and its connections to agents.
pub struct ServerNode {
    relay: Relay,
    hub: Hub,
    limits: NodeLimits,
    running: OnceLock<Running>,
}

struct Running {
    node: Node,
    agents: Arc<Agents>,
    /// Ends with the node.
    _tasks: JoinSet<()>,
}

/// The agents that the node knows.
#[derive(Debug, Default)]
struct Agents {
    table: Mutex<AgentTable>,
    /// An agent was added, or has no connection any more.
    changed: Notify,
}

#[derive(Debug, Default)]
struct AgentTable {
    agents: HashMap<AgentId, Usage>,
    owners: HashMap<UserId, OwnerUsage>,
    connections: usize,
    fast: usize,
}

#[derive(Debug, Default)]
struct OwnerUsage {
    connections: usize,
    fast: usize,
}

#[derive(Clone, Copy, Debug)]
struct Usage {
    connections: usize,
    /// When its last connection ended.
    idle_since: Instant,
}

/// One connection in the table.
#[derive(Debug)]
struct Lease {
    agents: Arc<Agents>,
    owner: UserId,
    agent: AgentId,
    is_fast: bool,
}

/// A connection to a port of an agent.
#[derive(Debug)]
pub struct AgentStream {
    stream: TcpStream,
    _lease: Lease,
}

impl ServerNode {
    /// A node that starts when it is first used.
    #[must_use]
    pub fn new(relay: Relay, hub: Hub, limits: NodeLimits) -> Self {
        Self { relay, hub, limits, running: OnceLock::new() }
    }

    /// Connects to a port of an agent in a workspace of `owner`. The caller has checked that somebody may.
    ///
    /// # Errors
    /// [`DialError`].
    pub async fn dial(&self, owner: UserId, agent: AgentId, port: u16) -> Result<AgentStream, DialError> {
        let running = self.running.get_or_init(|| self.start());
        let lease = Lease::take(&running.agents, owner, agent, self.limits)?;
        let address = address::of(agent.0);
        let reachable = running.node.wait_reachable(address, REACHABLE_TIMEOUT).await;
        reachable.map_err(DialError::Unreachable)?;
        let buffer = if lease.is_fast { TCP_BUFFER } else { SMALL_TCP_BUFFER };
        let connected = running.node.connect_with(SocketAddrV6::new(address, port, 0, 0), Some(buffer));
        match timeout(CONNECT_TIMEOUT, connected).await {
            Ok(Ok(stream)) => Ok(AgentStream { stream, _lease: lease }),
            Ok(Err(error @ node::Error::Connect(_))) => Err(DialError::Refused(port, error)),
            Ok(Err(node::Error::TooManyConnections)) => Err(DialError::AgentTooBusy),
            Ok(Err(error)) => Err(DialError::Unreachable(error)),
            Err(_) => Err(DialError::Silent(port)),
        }
    }

    /// Agents that the node knows now.
    #[must_use]
    pub fn agents(&self) -> usize {
        self.running.get().map_or(0, |running| running.agents.table.lock().agents.len())
    }

    /// Connections to agents now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.running.get().map_or(0, |running| running.agents.table.lock().connections)
    }

    fn start(&self) -> Running {
        let region = i32::try_from(EMBEDDED_REGION).expect("it is a small number");
        let dialer = Arc::new(InMemoryDialer { relay: self.relay.clone() });
        let node = Node::start(Config { tcp_buffer: TCP_BUFFER, ..Config::client(region, dialer) });
        let controller = Controller::new(node.clone(), Role::Client);
        let (agents, handle) = (Arc::<Agents>::default(), controller.handle());
        let mut tasks = JoinSet::new();
        tasks.spawn(coordinate(controller, self.hub.clone()));
        tasks.spawn(follow(Arc::clone(&agents), handle, self.limits.idle));
        Running { node, agents, _tasks: tasks }
    }
}

/// Keeps the node known to the coordinator of this process.
async fn coordinate(mut controller: Controller, hub: Hub) {
    let peer = Uuid::new_v4();
    let mut backoff = Backoff::new(FIRST_DELAY, MAX_DELAY).with_jitter();
    loop {
        let began = Instant::now();
        let (connection, mut responses) = hub.connect(peer, Authorization::Server);
        let (requests, mut outgoing) = mpsc::channel(QUEUED_REQUESTS);
        let forward = async {
            while let Some(request) = outgoing.recv().await {
                connection.request(request);
            }
        };
        tokio::select! {
            ended = controller.run(&requests, &mut responses) => {
                tracing::warn!(?ended, "the server's own node lost the coordinator");
            }
            () = forward => {}
        }
        if began.elapsed() > MAX_DELAY {
            backoff.reset();
        }
        drop(connection);
        sleep(backoff.next_delay()).await;
    }
}

/// Tells the controller which agents are wanted. It sleeps until something changes, or an idle agent is to be forgotten.
async fn follow(agents: Arc<Agents>, controller: Handle, idle: Duration) {
    let mut known = HashSet::new();
    loop {
        let changes = agents.changes(&known, idle);
        for agent in changes.forgotten {
            known.remove(&agent);
            controller.remove_destination(agent.0).await;
        }
        for agent in changes.added {
            known.insert(agent);
            controller.add_destination(agent.0).await;
        }
        tokio::select! {
            () = agents.changed.notified() => {}
            () = async { sleep_until(changes.next.unwrap_or_else(Instant::now)).await }, if changes.next.is_some() => {}
        }
    }
}

struct Changes {
    added: Vec<AgentId>,
    forgotten: Vec<AgentId>,
    /// When the next agent is to be forgotten.
    next: Option<Instant>,
}

impl Agents {
    /// Removes idle agents from the table, and compares it with the agents that the controller knows.
    fn changes(&self, known: &HashSet<AgentId>, idle: Duration) -> Changes {
        let now = Instant::now();
        let mut table = self.table.lock();
        table.agents.retain(|_, usage| usage.connections > 0 || usage.idle_since + idle > now);
        let waiting = table.agents.values().filter(|usage| usage.connections == 0);
        let next = waiting.map(|usage| usage.idle_since + idle).min();
        let added = table.agents.keys().filter(|agent| !known.contains(agent)).copied().collect();
        let forgotten = known.iter().filter(|agent| !table.agents.contains_key(agent)).copied().collect();
        Changes { added, forgotten, next }
    }
}

impl Lease {
    fn take(
        agents: &Arc<Agents>,
        owner: UserId,
        agent: AgentId,
        limits: NodeLimits,
    ) -> Result<Self, DialError> {
        let mut table = agents.table.lock();
        let free = limits.connections.saturating_sub(table.connections);
        if free == 0 {
            return Err(DialError::TooManyConnections);
        }
        let of_owner = table.owners.get(&owner).map_or((0, 0), |usage| (usage.connections, usage.fast));
        if of_owner.0 >= free {
            return Err(DialError::OwnerTooBusy);
        }
        let is_new = !table.agents.contains_key(&agent);
        if is_new && table.agents.len() >= limits.agents {
            let idle = table.agents.iter().filter(|(_, usage)| usage.connections == 0);
            let oldest = idle.min_by_key(|(_, usage)| usage.idle_since).map(|(agent, _)| *agent);
            table.agents.remove(&oldest.ok_or(DialError::TooManyConnections)?);
        }
        let usage =
            table.agents.entry(agent).or_insert_with(|| Usage { connections: 0, idle_since: Instant::now() });
        if usage.connections >= limits.agent_connections {
            return Err(DialError::AgentTooBusy);
        }
        usage.connections += 1;
        let is_fast = table.fast < limits.fast && of_owner.1 < limits.owner_fast;
        let of_owner = table.owners.entry(owner).or_default();
        of_owner.connections += 1;
        of_owner.fast += usize::from(is_fast);
        table.connections += 1;
        table.fast += usize::from(is_fast);
        drop(table);
        if is_new {
            agents.changed.notify_one();
        }
        Ok(Self { agents: Arc::clone(agents), owner, agent, is_fast })
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut table = self.agents.table.lock();
        table.connections -= 1;
        table.fast -= usize::from(self.is_fast);
        if let Some(usage) = table.owners.get_mut(&self.owner) {
            usage.connections -= 1;
            usage.fast -= usize::from(self.is_fast);
            if usage.connections == 0 {
                table.owners.remove(&self.owner);
            }
        }
        if let Some(usage) = table.agents.get_mut(&self.agent) {
            usage.connections -= 1;
            usage.idle_since = Instant::now();
            let is_idle = usage.connections == 0;
            drop(table);
            if is_idle {
                self.agents.changed.notify_one();
            }
        }
    }
}

/// Connects to the relay of this process without a socket.
struct InMemoryDialer {
    relay: Relay,
}

impl Dialer for InMemoryDialer {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async move {
            if i64::from(region) != EMBEDDED_REGION {
                let text = format!("region {region} is not a relay of this server");
                return Err(io::Error::new(io::ErrorKind::NotFound, text));
            }
            let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
            let relay = self.relay.clone();
            // It ends when our end is dropped.
            tokio::spawn(async move {
                if let Err(error) = relay.serve(theirs).await {
                    tracing::debug!(%error, "the server's own connection to its relay ended");
                }
            });
            Ok(Box::new(ours) as BoxedStream)
        })
    }
}

impl AsyncRead for AgentStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for AgentStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: NodeLimits = NodeLimits {
        agents: 2,
        agent_connections: 2,
        connections: 3,
        fast: 10,
        owner_fast: 10,
        idle: Duration::from_secs(60),
    };

    fn take(agents: &Arc<Agents>, agent: AgentId) -> Result<Lease, DialError> {
        Lease::take(agents, UserId::random(), agent, LIMITS)
    }

    #[tokio::test(start_paused = true)]
    async fn idle_agents_are_forgotten_and_used_ones_kept() {
        let agents = Arc::<Agents>::default();
        let (used, idle) = (AgentId::random(), AgentId::random());
        let kept = take(&agents, used).unwrap();
        drop(take(&agents, idle).unwrap());
        let changes = agents.changes(&HashSet::new(), LIMITS.idle);
        assert_eq!(changes.added.len(), 2);
        assert_eq!(changes.next, Some(Instant::now() + LIMITS.idle));
        let known: HashSet<_> = changes.added.into_iter().collect();
        tokio::time::advance(LIMITS.idle).await;
        let changes = agents.changes(&known, LIMITS.idle);
        assert_eq!((changes.forgotten, changes.next), (vec![idle], None));
        drop(kept);
        assert!(agents.changes(&[used].into(), LIMITS.idle).forgotten.is_empty());
    }

    #[tokio::test]
    async fn connections_and_agents_are_bounded() {
        let agents = Arc::<Agents>::default();
        let (first, second, third) = (AgentId::random(), AgentId::random(), AgentId::random());
        let take = |agent| take(&agents, agent);
        let held = (take(first).unwrap(), take(first).unwrap());
        assert!(matches!(take(first), Err(DialError::AgentTooBusy)));
        let other = take(second).unwrap();
        assert!(matches!(take(second), Err(DialError::TooManyConnections)), "for all agents");
        drop(held.0);
        assert!(matches!(take(third), Err(DialError::TooManyConnections)), "two agents are in use");
        drop(other);
        // The idle one makes room.
        let _third = take(third).unwrap();
        assert!(!agents.table.lock().agents.contains_key(&second));
        assert_eq!(agents.table.lock().connections, 2);
    }

    #[tokio::test]
    async fn workspaces_of_one_owner_leave_connections_for_others() {
        let agents = Arc::<Agents>::default();
        let limits = NodeLimits { agents: 1000, connections: 60, fast: 12, owner_fast: 8, ..LIMITS };
        let fill = |owner| -> Vec<_> {
            std::iter::from_fn(|| Lease::take(&agents, owner, AgentId::random(), limits).ok()).collect()
        };
        let owners = [(); 4].map(|()| UserId::random());
        let held = owners.map(fill);
        assert_eq!(held.each_ref().map(Vec::len), [30, 15, 8, 4]);
        let fast = held.each_ref().map(|leases| leases.iter().filter(|lease| lease.is_fast).count());
        assert_eq!(fast, [8, 4, 0, 0]);
        let more = Lease::take(&agents, owners[0], AgentId::random(), limits);
        assert!(matches!(more, Err(DialError::OwnerTooBusy)));
        drop(held);
        let table = agents.table.lock();
        assert_eq!((table.owners.len(), table.connections, table.fast), (0, 0, 0));
    }
}
