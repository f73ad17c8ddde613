//! The coordinator: which peers may know each other, and what each of them is sent. `hub` connects it with streams.
//!
//! No I/O: each call returns which responses go to which connections. A *tunnel* is the wish of one peer to reach another; while it
//! exists, each of the two is sent the other's node. Tunnels to peers that are not connected are remembered.
//!
//! Peers of other servers take part like all others, but nothing is sent to them: their own server does that. `replicas` has
//! what servers tell each other.

mod authorization;
pub mod hub;
mod replicas;

use std::collections::{BTreeSet, HashMap};

use uuid::Uuid;

pub use self::authorization::{Authorization, Denied};
pub use self::replicas::TooMany;
use crate::messages::coordinate_response::PeerUpdate;
use crate::messages::coordinate_response::peer_update::Kind;
use crate::messages::{CoordinateRequest, CoordinateResponse, Node};

/// Tunnels that one peer may open, unless it is the server.
const TUNNELS: usize = 4096;
/// The error of a connection whose peer connected again.
const OVERWRITTEN: &str = "peer ID overwritten by new connection";

/// One connection of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(u64);

/// What must be done with a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send this.
    Send(ConnectionId, CoordinateResponse),
    /// End it, after what was sent before.
    Close(ConnectionId),
}

/// What other servers must hear of a peer that is connected here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It connected, or its node changed.
    Peer(Uuid),
    /// It is gone, and its tunnels with it.
    Gone(Uuid, Kind),
    /// It opened or closed a tunnel.
    Tunnel(Uuid, Uuid),
    /// It is ready for a handshake of a peer of another server.
    Ready(Uuid, Uuid),
}

#[derive(Debug)]
struct Peer {
    connection: ConnectionId,
    authorization: Authorization,
    node: Option<Node>,
    /// The nodes of its partners, as they were sent last.
    sent_nodes: HashMap<Uuid, Node>,
}

/// The peers and tunnels of one server, and those of the others.
#[derive(Debug, Default)]
pub struct Coordinator {
    peers: HashMap<Uuid, Peer>,
    connections: HashMap<ConnectionId, Uuid>,
    /// Tunnels by the peer that opened them.
    opened: HashMap<Uuid, BTreeSet<Uuid>>,
    /// The same tunnels by the other end.
    reached: HashMap<Uuid, BTreeSet<Uuid>>,
    next: u64,
    changes: Vec<Change>,
}

impl Coordinator {
    /// Adds a connection of a peer. An older one of the same peer ends.
    pub fn connect(&mut self, id: Uuid, authorization: Authorization) -> (ConnectionId, Vec<Output>) {
        let mut outputs = Vec::new();
        if let Some(old) = self.peers.get(&id).map(|peer| peer.connection) {
            outputs.push(error(old, OVERWRITTEN.to_owned()));
            self.end(old, Kind::Lost, OVERWRITTEN, &mut outputs);
            outputs.push(Output::Close(old));
        }
        self.next += 1;
        let connection = ConnectionId(self.next);
        let mut peer = Peer { connection, authorization, node: None, sent_nodes: HashMap::new() };
        // Tunnels to it were kept: it meets its partners again.
        for partner in self.partners(id) {
            if let Some(node) = self.peers.get(&partner).and_then(|peer| peer.node.clone()) {
                outputs.extend(peer.send_node(partner, node));
            }
        }
        if peer.authorization.is_here() {
            self.changes.push(Change::Peer(id));
        }
        self.peers.insert(id, peer);
        self.connections.insert(connection, id);
        (connection, outputs)
    }

    /// Takes a request. One of a connection that has ended does nothing.
    pub fn request(&mut self, connection: ConnectionId, request: CoordinateRequest) -> Vec<Output> {
        let mut outputs = Vec::new();
        let Some(id) = self.connections.get(&connection).copied() else { return outputs };
        if let Err(denied) = self.apply(id, connection, request, &mut outputs) {
            let reason = denied.to_string();
            outputs.push(error(connection, reason.clone()));
            self.end(connection, Kind::Lost, &reason, &mut outputs);
            outputs.push(Output::Close(connection));
        }
        outputs
    }

    /// A connection ended without a disconnect.
    pub fn lost(&mut self, connection: ConnectionId) -> Vec<Output> {
        let mut outputs = Vec::new();
        self.end(connection, Kind::Lost, "lost", &mut outputs);
        outputs
    }

    /// The peer may not take part any more. Its partners forget it at once, which ends its connections to them.
    pub fn revoke(&mut self, connection: ConnectionId, reason: &str) -> Vec<Output> {
        let mut outputs = Vec::new();
        if self.connections.contains_key(&connection) {
            outputs.push(error(connection, format!("authorization: {reason}")));
            self.end(connection, Kind::Disconnected, reason, &mut outputs);
            outputs.push(Output::Close(connection));
        }
        outputs
    }

    /// Peers now, those of other servers included.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// Whether a connection has not ended.
    fn is_open(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// Whether a peer is connected to this server.
    fn is_here(&self, id: Uuid) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.authorization.is_here())
    }

    /// The peers that are connected to this server.
    fn peers_here(&self) -> impl Iterator<Item = Uuid> {
        self.peers.iter().filter(|(_, peer)| peer.authorization.is_here()).map(|(id, _)| *id)
    }

    /// The tunnels that a peer opened.
    fn opened_by(&self, id: Uuid) -> impl Iterator<Item = Uuid> {
        self.opened.get(&id).into_iter().flatten().copied()
    }

    /// What has changed here since the last call.
    fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// Whether a peer is connected and has announced its node.
    #[must_use]
    pub fn node(&self, id: Uuid) -> Option<&Node> {
        self.peers.get(&id)?.node.as_ref()
    }

    fn apply(
        &mut self,
        id: Uuid,
        connection: ConnectionId,
        request: CoordinateRequest,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Denied> {
        if let Some(node) = request.update_self.and_then(|update| update.node) {
            self.update_node(id, node, outputs)?;
        }
        if let Some(tunnel) = request.add_tunnel {
            self.add_tunnel(id, parse(&tunnel.id)?, outputs)?;
        }
        if let Some(tunnel) = request.remove_tunnel {
            self.remove_tunnel(id, parse(&tunnel.id)?, outputs);
        }
        for ready in request.ready_for_handshake {
            self.ready(id, connection, parse(&ready.id)?, outputs)?;
        }
        if request.disconnect.is_some() {
            self.end(connection, Kind::Disconnected, "graceful disconnect", outputs);
            outputs.push(Output::Close(connection));
        }
        Ok(())
    }

    fn update_node(&mut self, id: Uuid, node: Node, outputs: &mut Vec<Output>) -> Result<(), Denied> {
        let Some(peer) = self.peers.get_mut(&id) else { return Ok(()) };
        if peer.authorization.is_here() {
            peer.authorization.check_node(&node)?;
            self.changes.push(Change::Peer(id));
        }
        peer.node = Some(node.clone());
        for partner in self.partners(id) {
            if let Some(partner) = self.peers.get_mut(&partner) {
                outputs.extend(partner.send_node(id, node.clone()));
            }
        }
        Ok(())
    }

    fn add_tunnel(&mut self, id: Uuid, to: Uuid, outputs: &mut Vec<Output>) -> Result<(), Denied> {
        let Some(peer) = self.peers.get(&id) else { return Ok(()) };
        peer.authorization.check_tunnel(to)?;
        let (is_here, is_unlimited) = (peer.authorization.is_here(), peer.authorization.is_unlimited());
        let opened = self.opened.entry(id).or_default();
        if opened.len() >= TUNNELS && !is_unlimited && !opened.contains(&to) {
            return Err(Denied::TooManyTunnels(TUNNELS));
        }
        opened.insert(to);
        if is_here {
            self.changes.push(Change::Tunnel(id, to));
        }
        self.reached.entry(to).or_default().insert(id);
        for (about, receiver) in [(id, to), (to, id)] {
            let node = self.peers.get(&about).and_then(|peer| peer.node.clone());
            if let (Some(node), Some(receiver)) = (node, self.peers.get_mut(&receiver)) {
                outputs.extend(receiver.send_node(about, node));
            }
        }
        Ok(())
    }

    fn remove_tunnel(&mut self, id: Uuid, to: Uuid, outputs: &mut Vec<Output>) {
        if !remove(&mut self.opened, id, to) {
            return;
        }
        remove(&mut self.reached, to, id);
        if self.is_here(id) {
            self.changes.push(Change::Tunnel(id, to));
        }
        if !self.has_tunnel(id, to) {
            for (about, receiver) in [(id, to), (to, id)] {
                self.send_removed(receiver, about, Kind::Disconnected, "remove tunnel", outputs);
            }
        }
    }

    fn ready(
        &mut self,
        id: Uuid,
        connection: ConnectionId,
        to: Uuid,
        outputs: &mut Vec<Output>,
    ) -> Result<(), Denied> {
        let Some(peer) = self.peers.get(&id) else { return Ok(()) };
        peer.authorization.check_ready()?;
        let is_here = peer.authorization.is_here();
        if !self.has_tunnel(id, to) {
            // The tunnel may have gone in between: the connection goes on.
            let text = format!("ready for handshake error: no tunnel between {id} and {to}");
            outputs.push(error(connection, text));
            return Ok(());
        }
        let Some(receiver) = self.peers.get(&to) else { return Ok(()) };
        if !receiver.authorization.is_here() {
            if is_here {
                self.changes.push(Change::Ready(id, to));
            }
        } else {
            let update = PeerUpdate {
                id: id.as_bytes().to_vec(),
                kind: Kind::ReadyForHandshake.into(),
                ..PeerUpdate::default()
            };
            outputs.push(send(receiver.connection, update));
        }
        Ok(())
    }

    /// Removes a connection's peer and the tunnels that it opened.
    fn end(&mut self, connection: ConnectionId, kind: Kind, reason: &str, outputs: &mut Vec<Output>) {
        let Some(id) = self.connections.remove(&connection) else { return };
        let partners = self.partners(id);
        let peer = self.peers.remove(&id);
        if peer.is_some_and(|peer| peer.authorization.is_here()) {
            self.changes.push(Change::Gone(id, kind));
        }
        for to in self.opened.remove(&id).unwrap_or_default() {
            remove(&mut self.reached, to, id);
        }
        for partner in partners {
            self.send_removed(partner, id, kind, reason, outputs);
        }
    }

    /// Sends a peer that another is gone, if it was sent its node.
    fn send_removed(
        &mut self,
        receiver: Uuid,
        about: Uuid,
        kind: Kind,
        reason: &str,
        outputs: &mut Vec<Output>,
    ) {
        let Some(receiver) = self.peers.get_mut(&receiver) else { return };
        if receiver.sent_nodes.remove(&about).is_some() {
            let update = PeerUpdate {
                id: about.as_bytes().to_vec(),
                kind: kind.into(),
                reason: reason.to_owned(),
                node: None,
            };
            outputs.push(send(receiver.connection, update));
        }
    }

    /// The peers at the other ends of a peer's tunnels, whoever opened them.
    fn partners(&self, id: Uuid) -> BTreeSet<Uuid> {
        let ends = [self.opened.get(&id), self.reached.get(&id)];
        ends.into_iter().flatten().flatten().copied().collect()
    }

    fn has_tunnel(&self, one: Uuid, other: Uuid) -> bool {
        let has = |from: Uuid, to: Uuid| self.opened.get(&from).is_some_and(|opened| opened.contains(&to));
        has(one, other) || has(other, one)
    }
}

impl Peer {
    /// Sends it the node of a partner, unless the same was sent last.
    fn send_node(&mut self, about: Uuid, node: Node) -> Option<Output> {
        if !self.authorization.is_here() || self.sent_nodes.get(&about) == Some(&node) {
            return None;
        }
        self.sent_nodes.insert(about, node.clone());
        let update = PeerUpdate {
            id: about.as_bytes().to_vec(),
            node: Some(node),
            kind: Kind::Node.into(),
            reason: "node update".to_owned(),
        };
        Some(send(self.connection, update))
    }
}

fn remove(tunnels: &mut HashMap<Uuid, BTreeSet<Uuid>>, from: Uuid, to: Uuid) -> bool {
    let Some(ends) = tunnels.get_mut(&from) else { return false };
    let removed = ends.remove(&to);
    if ends.is_empty() {
        tunnels.remove(&from);
    }
    removed
}

fn parse(id: &[u8]) -> Result<Uuid, Denied> {
    Uuid::from_slice(id).map_err(|_| Denied::Id)
}

fn send(connection: ConnectionId, update: PeerUpdate) -> Output {
    Output::Send(connection, CoordinateResponse { peer_updates: vec![update], error: String::new() })
}

fn error(connection: ConnectionId, error: String) -> Output {
    Output::Send(connection, CoordinateResponse { peer_updates: Vec::new(), error })
}
