//! Keeps a node's peers as the coordinator describes them. The streams to the coordinator come from outside, one after the
//! other; peers outlive them.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::messages::coordinate_request::{Disconnect, ReadyForHandshake, Tunnel, UpdateSelf};
use crate::messages::{CoordinateRequest, CoordinateResponse};
use crate::node::Node;
use crate::peer::{Action, Peers, Role};

/// Destinations that wait to be added or removed.
const COMMANDS: usize = 64;
/// How often lost peers are looked after.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// The error when a peer disconnected before READY_FOR_HANDSHAKE reached it. The stream goes on.
const READY_ERROR: &str = "ready for handshake error";

/// Why a stream to the coordinator ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It was lost. Peers are kept for a while.
    #[error("the connection to the coordinator was lost")]
    Lost,
    /// The coordinator ended it.
    #[error("the coordinator ended the connection: {0}")]
    Refused(String),
}

enum Command {
    Add(Uuid),
    Remove(Uuid),
}

/// Applies what the coordinator sends to a node.
pub struct Controller {
    node: Node,
    peers: Peers,
    commands: mpsc::Receiver<Command>,
    handle: Handle,
}

/// Chooses the agents that a client reaches.
#[derive(Debug, Clone)]
pub struct Handle {
    commands: mpsc::Sender<Command>,
}

impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Add(id) => write!(f, "Add({id})"),
            Self::Remove(id) => write!(f, "Remove({id})"),
        }
    }
}

impl Handle {
    /// Reaches this agent from now on.
    pub async fn add_destination(&self, agent: Uuid) {
        // A controller that has ended reaches nobody.
        let _ = self.commands.send(Command::Add(agent)).await;
    }

    /// Does not reach this agent any more.
    pub async fn remove_destination(&self, agent: Uuid) {
        let _ = self.commands.send(Command::Remove(agent)).await;
    }
}

impl Controller {
    /// The peers of `node`.
    #[must_use]
    pub fn new(node: Node, role: Role) -> Self {
        let (sender, commands) = mpsc::channel(COMMANDS);
        Self { node, peers: Peers::new(role), commands, handle: Handle { commands: sender } }
    }

    /// Chooses destinations while it runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Reaches this agent with the next stream.
    pub fn add_destination(&mut self, agent: Uuid) {
        self.peers.add_destination(agent);
    }

    /// Follows one stream to the coordinator until it ends.
    ///
    /// An agent is announced once its home relay is connected: without it nobody could reach it. A client speaks first, so it is
    /// announced at once, while it connects.
    ///
    /// # Errors
    /// Why it ended. It always does.
    pub async fn run(
        &mut self,
        requests: &mpsc::Sender<CoordinateRequest>,
        responses: &mut mpsc::Receiver<CoordinateResponse>,
    ) -> Result<(), Error> {
        let result = self.follow(requests, responses).await;
        self.peers.lose_all(Instant::now());
        result
    }

    async fn follow(
        &mut self,
        requests: &mpsc::Sender<CoordinateRequest>,
        responses: &mut mpsc::Receiver<CoordinateResponse>,
    ) -> Result<(), Error> {
        if self.peers.role() == Role::Agent {
            let mut home = self.node.home_relay();
            home.wait_for(|is_up| *is_up).await.map_err(|_| Error::Lost)?;
        }
        let announce = UpdateSelf { node: Some(self.node.message()) };
        send(requests, CoordinateRequest { update_self: Some(announce), ..CoordinateRequest::default() })
            .await?;
        let destinations: Vec<_> = self.peers.destinations().collect();
        for agent in destinations {
            send(requests, add_tunnel(agent)).await?;
        }
        loop {
            let node = self.node.clone();
            let next = self.peers.next_tick(|id| node.activity(id));
            let due = async {
                match next {
                    // Connections that end in between make it earlier.
                    Some(at) => tokio::time::sleep_until(at.min(Instant::now() + CHECK_INTERVAL)).await,
                    None => std::future::pending().await,
                }
            };
            let actions = tokio::select! {
                response = responses.recv() => {
                    let response = response.ok_or(Error::Lost)?;
                    if response.error.starts_with(READY_ERROR) {
                        tracing::debug!(error = response.error, "a peer disconnected before it was ready for a handshake");
                    } else if !response.error.is_empty() {
                        return Err(Error::Refused(response.error));
                    }
                    let now = Instant::now();
                    response.peer_updates.iter().flat_map(|update| self.peers.update(now, update)).collect()
                }
                command = self.commands.recv() => match command {
                    Some(Command::Add(agent)) => {
                        self.peers.add_destination(agent);
                        send(requests, add_tunnel(agent)).await?;
                        Vec::new()
                    }
                    Some(Command::Remove(agent)) => {
                        let tunnel = Tunnel { id: agent.as_bytes().to_vec() };
                        let request =
                            CoordinateRequest { remove_tunnel: Some(tunnel), ..CoordinateRequest::default() };
                        send(requests, request).await?;
                        self.peers.remove_destination(agent).into_iter().collect()
                    }
                    None => Vec::new(),
                },
                () = due => self.peers.tick(Instant::now(), |id| node.activity(id)),
            };
            self.apply(actions, requests).await?;
        }
    }

    async fn apply(
        &self,
        actions: Vec<Action>,
        requests: &mpsc::Sender<CoordinateRequest>,
    ) -> Result<(), Error> {
        let mut ready = Vec::new();
        for action in actions {
            match action {
                Action::Set(config) => self.node.set_peer(config),
                Action::Remove(id) => self.node.remove_peer(id),
                Action::ReadyForHandshake(id) => {
                    ready.push(ReadyForHandshake { id: id.as_bytes().to_vec() });
                }
            }
        }
        if ready.is_empty() {
            return Ok(());
        }
        send(requests, CoordinateRequest { ready_for_handshake: ready, ..CoordinateRequest::default() }).await
    }

    /// Forgets peers that were lost for too long. Call it while there is no stream; when it must be called next.
    pub fn tick(&mut self) -> Option<Instant> {
        let node = self.node.clone();
        for action in self.peers.tick(Instant::now(), |id| node.activity(id)) {
            match action {
                Action::Set(config) => self.node.set_peer(config),
                Action::Remove(id) => self.node.remove_peer(id),
                // There is no stream to send it to.
                Action::ReadyForHandshake(_) => {}
            }
        }
        self.peers.next_tick(|id| node.activity(id))
    }

    /// Disconnects: partners are sent at once that this peer is gone. Returns when the coordinator has ended the stream.
    pub async fn disconnect(
        &self,
        requests: &mpsc::Sender<CoordinateRequest>,
        responses: &mut mpsc::Receiver<CoordinateResponse>,
    ) {
        let request = CoordinateRequest { disconnect: Some(Disconnect {}), ..CoordinateRequest::default() };
        if requests.send(request).await.is_ok() {
            while responses.recv().await.is_some() {}
        }
    }
}

fn add_tunnel(agent: Uuid) -> CoordinateRequest {
    let tunnel = Tunnel { id: agent.as_bytes().to_vec() };
    CoordinateRequest { add_tunnel: Some(tunnel), ..CoordinateRequest::default() }
}

async fn send(requests: &mpsc::Sender<CoordinateRequest>, request: CoordinateRequest) -> Result<(), Error> {
    requests.send(request).await.map_err(|_| Error::Lost)
}
