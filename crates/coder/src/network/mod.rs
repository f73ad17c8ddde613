//! The user's end of the overlay network: a node that reaches one agent over the server's relay (docs/network.md).

mod coordination;
mod relay;
pub(crate) mod target;

use std::net::SocketAddrV6;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::client::Client;
use coder_api::deployment::AgentConnectionInfo;
use coder_domain::ids::AgentId;
use coder_tailnet::address;
use coder_tailnet::derp::DerpMap;
use coder_tailnet::node::{Config, Node, PingKind, Pong, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::relay::RelayDialer;

/// How long the agent may take to answer for the first time.
const REACHABLE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a port of a reachable agent may take to answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const NO_ANSWER: &str = "the agent does not answer: it may be offline, or its network may block the server";
/// How long the last message to the server may take.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// This end of the network: a node that connects to the server's relay, and knows no agent yet.
#[derive(Debug)]
pub(crate) struct OwnNode {
    client: Client,
    node: Node,
    region: String,
}

impl OwnNode {
    /// Starts to connect.
    pub(crate) fn start(client: &Client, info: &AgentConnectionInfo) -> anyhow::Result<Self> {
        let dialer = RelayDialer::new(client, info)?;
        let home = dialer.map().home().context(
            "the server's DERP map has no relay, so the workspace cannot be reached: ask an administrator",
        )?;
        let region = dialer.map().regions.get(&home).map(|region| region.region_name.clone());
        let home = i32::try_from(home).context("the server's DERP map has an impossible region")?;
        let node = Node::start(Config::client(home, Arc::new(dialer)));
        Ok(Self { client: client.clone(), node, region: region.unwrap_or_default() })
    }

    /// Starts to reach this agent.
    pub(crate) fn reach(self, agent: AgentId) -> AgentConnection {
        let Self { client, node, region } = self;
        let (refused, refusal) = watch::channel(None);
        let stop = CancellationToken::new();
        let coordination =
            tokio::spawn(coordination::run(client, agent, node.clone(), stop.clone(), refused));
        AgentConnection { node, agent, region, refusal, stop, coordination }
    }
}

/// A connection to one agent. Dropping it ends it; [`Self::close`] tells the agent.
#[derive(Debug)]
pub(crate) struct AgentConnection {
    node: Node,
    agent: AgentId,
    region: String,
    /// Why the server will not go on, once it said so.
    refusal: watch::Receiver<Option<String>>,
    stop: CancellationToken,
    coordination: JoinHandle<()>,
}

impl AgentConnection {
    /// Starts to connect.
    pub(crate) fn open(client: &Client, agent: AgentId, info: &AgentConnectionInfo) -> anyhow::Result<Self> {
        Ok(OwnNode::start(client, info)?.reach(agent))
    }

    /// Waits until the agent answers.
    pub(crate) async fn wait_reachable(&self) -> anyhow::Result<Pong> {
        let address = address::of(self.agent.0);
        tokio::select! {
            result = self.node.wait_reachable(address, REACHABLE_TIMEOUT) => result.context(NO_ANSWER),
            refusal = self.refused() => Err(refusal),
        }
    }

    /// Waits until the agent answers, at one of its ports. It takes one round trip less than [`Self::wait_reachable`] and
    /// [`Self::connect`].
    pub(crate) async fn connect_first(&self, port: u16) -> anyhow::Result<TcpStream> {
        let to = SocketAddrV6::new(address::of(self.agent.0), port, 0, 0);
        tokio::select! {
            connected = tokio::time::timeout(REACHABLE_TIMEOUT, self.node.reach(to)) => match connected {
                Ok(stream) => stream.with_context(|| format!("connect to port {port} in the workspace")),
                Err(_) => bail!(NO_ANSWER),
            },
            refusal = self.refused() => Err(refusal),
        }
    }

    /// Connects to a port of the agent.
    pub(crate) async fn connect(&self, port: u16) -> anyhow::Result<TcpStream> {
        let to = SocketAddrV6::new(address::of(self.agent.0), port, 0, 0);
        tokio::select! {
            connected = tokio::time::timeout(CONNECT_TIMEOUT, self.node.connect(to)) => match connected {
                Ok(stream) => stream.with_context(|| format!("connect to port {port} in the workspace")),
                Err(_) => bail!("connect to port {port} in the workspace: no answer within {CONNECT_TIMEOUT:?}"),
            },
            refusal = self.refused() => Err(refusal),
        }
    }

    /// Pings the agent beside the tunnel.
    pub(crate) async fn ping(&self, timeout: Duration) -> anyhow::Result<Pong> {
        tokio::select! {
            pong = self.node.ping(address::of(self.agent.0), PingKind::Disco, timeout) => Ok(pong?),
            refusal = self.refused() => Err(refusal),
        }
    }

    /// Waits until the server refuses to go on: the right to connect has ended, or the agent is gone.
    pub(crate) async fn refused(&self) -> anyhow::Error {
        let mut refusal = self.refusal.clone();
        let text = refusal.wait_for(Option::is_some).await.ok().and_then(|text| text.clone());
        match text {
            Some(text) => anyhow::anyhow!(text),
            // The task has ended without a refusal: it was stopped.
            None => std::future::pending().await,
        }
    }

    /// The node, for UDP.
    pub(crate) const fn node(&self) -> &Node {
        &self.node
    }

    /// The agent's id.
    pub(crate) const fn agent(&self) -> AgentId {
        self.agent
    }

    /// The name of the relay's region.
    pub(crate) fn region(&self) -> &str {
        &self.region
    }

    /// Tells the agent that this client is gone.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        // A server that does not answer finds out by itself.
        let _ = tokio::time::timeout(DISCONNECT_TIMEOUT, &mut self.coordination).await;
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        self.coordination.abort();
    }
}

/// Reads the DERP map of the server, with the relay at the URL that this client uses.
pub(crate) fn derp_map(client: &Client, info: &AgentConnectionInfo) -> anyhow::Result<DerpMap> {
    let mut map: DerpMap =
        serde_json::from_value(info.derp_map.clone()).context("the server's DERP map is malformed")?;
    map.rewrite(&coder_agent::relay::server_url(client.base()));
    Ok(map)
}
