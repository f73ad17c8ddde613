//! What the coordinators of several servers tell each other, so that peers of different servers meet.
//!
//! Each server tells every other one of the peers that are connected to it: their nodes, and the tunnels that they opened. So
//! each coordinator knows all peers, and sends only to its own. A server announces the present state: a connection
//! to another server keeps which peers and tunnels must still be announced, never a list of past events.
//!
//! A peer may seem to be connected to two servers, because one of them has not noticed the end of a connection. The newer
//! connection counts: each has a number above all numbers that its server knew at that moment.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use prost::Message as _;
use tokio::sync::Notify;
use uuid::Uuid;

use super::{Change, ConnectionId, Coordinator, Output};
use crate::mesh::frame::Frame;
use crate::messages::coordinate_request::{Disconnect, ReadyForHandshake, Tunnel, UpdateSelf};
use crate::messages::coordinate_response::peer_update::Kind;
use crate::messages::{CoordinateRequest, Node};

/// Peers, and tunnels, that another server may have, and that may wait to be told to it.
const MOST: usize = 200_000;
/// Peers that are ready for a handshake and wait to be told. Without it the other peer waits for some seconds.
const READY: usize = 1024;

/// Another server has more peers or tunnels than are kept, or reads too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {MOST} peers or tunnels of a server are too many")]
pub struct TooMany;

/// The peers of the other servers, and what must be announced to them.
#[derive(Debug, Default)]
pub(super) struct Replicas {
    /// The highest number of a connection that is known.
    clock: u64,
    /// Connections of other servers so far.
    epochs: u64,
    /// The connections of this server's peers.
    here: HashMap<Uuid, u64>,
    /// What the other servers have told.
    servers: HashMap<Uuid, Server>,
    /// What the other servers must be told.
    links: HashMap<Uuid, Outgoing>,
}

#[derive(Debug, Default)]
struct Server {
    /// The number of its newest connection to this server, and whether that is open.
    epoch: u64,
    is_linked: bool,
    peers: HashMap<Uuid, RemotePeer>,
    tunnels: usize,
}

#[derive(Debug, Default)]
struct RemotePeer {
    number: u64,
    /// The epoch in which it was announced last.
    epoch: u64,
    /// As it was announced; empty while the peer has announced none.
    node: Vec<u8>,
    /// Tunnels that it opened, and the epoch in which each was announced last.
    tunnels: HashMap<Uuid, u64>,
    /// Its connection, unless the peer has a newer one at another server.
    connection: Option<ConnectionId>,
}

#[derive(Debug)]
struct Outgoing {
    wake: Arc<Notify>,
    /// Peers to tell of; with a kind when the peer was gone in between.
    peers: BTreeMap<Uuid, Option<Kind>>,
    tunnels: BTreeSet<(Uuid, Uuid)>,
    ready: VecDeque<(Uuid, Uuid)>,
    /// What was there at the beginning is not told completely yet.
    is_beginning: bool,
}

fn update(node: &[u8]) -> Option<CoordinateRequest> {
    // An empty node is one that was not announced.
    let node = Node::decode(node).ok().filter(|_| !node.is_empty())?;
    Some(CoordinateRequest {
        update_self: Some(UpdateSelf { node: Some(node) }),
        ..CoordinateRequest::default()
    })
}

fn tunnel(to: Uuid, exists: bool) -> CoordinateRequest {
    let tunnel = Some(Tunnel { id: to.as_bytes().to_vec() });
    if exists {
        CoordinateRequest { add_tunnel: tunnel, ..CoordinateRequest::default() }
    } else {
        CoordinateRequest { remove_tunnel: tunnel, ..CoordinateRequest::default() }
    }
}

fn end(coordinator: &mut Coordinator, connection: ConnectionId, kind: Kind) -> Vec<Output> {
    if kind == Kind::Disconnected {
        let request = CoordinateRequest { disconnect: Some(Disconnect {}), ..CoordinateRequest::default() };
        coordinator.request(connection, request)
    } else {
        coordinator.lost(connection)
    }
}

/// What this server tells.
impl Replicas {
    /// A peer connects to this server.
    pub(super) fn connected(&mut self, id: Uuid) {
        self.clock += 1;
        self.here.insert(id, self.clock);
    }

    /// Begins to tell another server of what there is here.
    pub(super) fn open(&mut self, coordinator: &Coordinator, server: Uuid, wake: Arc<Notify>) {
        let peers: BTreeMap<_, _> = coordinator.peers_here().map(|id| (id, None)).collect();
        let tunnels =
            peers.keys().flat_map(|id| coordinator.opened_by(*id).map(move |to| (*id, to))).collect();
        let link = Outgoing { wake, peers, tunnels, ready: VecDeque::new(), is_beginning: true };
        self.links.insert(server, link);
    }

    /// Tells another server nothing any more, unless a newer connection does.
    pub(super) fn close(&mut self, server: Uuid, wake: &Arc<Notify>) {
        if self.links.get(&server).is_some_and(|link| Arc::ptr_eq(&link.wake, wake)) {
            self.links.remove(&server);
        }
    }

    /// Takes what changed here. The outputs of peers that now count as connected to another server.
    pub(super) fn note(&mut self, coordinator: &mut Coordinator) -> Vec<Output> {
        let mut outputs = Vec::new();
        loop {
            let changes = coordinator.take_changes();
            if changes.is_empty() {
                return outputs;
            }
            for change in changes {
                for (server, link) in &mut self.links {
                    link.note(change, self.servers.get(server), coordinator);
                }
                if let Change::Gone(id, _) = change
                    && !coordinator.is_here(id)
                {
                    self.here.remove(&id);
                    outputs.extend(self.elect(coordinator, id));
                }
            }
        }
    }

    /// Moves what a server must be told into `out`, about `limit` bytes at once.
    ///
    /// # Errors
    /// [`TooMany`] when it is too slow.
    pub(super) fn gather(
        &mut self,
        coordinator: &Coordinator,
        server: Uuid,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), TooMany> {
        let Some(link) = self.links.get_mut(&server) else { return Ok(()) };
        if link.peers.len().max(link.tunnels.len()) > MOST {
            return Err(TooMany);
        }
        while out.len() < limit
            && let Some((id, gone)) = link.peers.pop_first()
        {
            if let Some(kind) = gone {
                Frame::PeerGone { id, is_revoked: kind == Kind::Disconnected }.encode(out);
            }
            if let Some(number) = self.here.get(&id).filter(|_| coordinator.is_here(id)) {
                let node = coordinator.node(id).map(Node::encode_to_vec).unwrap_or_default();
                Frame::Peer { id, number: *number, node: &node }.encode(out);
            }
        }
        // A tunnel is announced after the peer that opened it.
        while out.len() < limit
            && link.peers.is_empty()
            && let Some((from, to)) = link.tunnels.pop_first()
        {
            if coordinator.is_here(from) {
                let exists = coordinator.opened.get(&from).is_some_and(|opened| opened.contains(&to));
                Frame::Tunnel { from, to, exists }.encode(out);
            }
        }
        if link.peers.is_empty() && link.tunnels.is_empty() {
            while out.len() < limit
                && let Some((from, to)) = link.ready.pop_front()
            {
                Frame::Ready { from, to }.encode(out);
            }
            if std::mem::take(&mut link.is_beginning) {
                Frame::Complete.encode(out);
            }
        }
        Ok(())
    }
}

impl Outgoing {
    fn note(&mut self, change: Change, server: Option<&Server>, coordinator: &Coordinator) {
        match change {
            Change::Peer(id) => {
                self.peers.entry(id).or_insert(None);
            }
            Change::Gone(id, kind) => {
                let entry = self.peers.entry(id).or_insert(None);
                if *entry != Some(Kind::Disconnected) {
                    *entry = Some(kind);
                }
            }
            Change::Tunnel(from, to) => {
                self.tunnels.insert((from, to));
            }
            Change::Ready(from, to) => {
                if self.ready.len() >= READY || !server.is_some_and(|server| server.has(to, coordinator)) {
                    return;
                }
                self.ready.push_back((from, to));
            }
        }
        self.wake.notify_one();
    }
}

/// What other servers tell.
impl Replicas {
    /// Another server begins to tell. The number of this connection.
    pub(super) fn linked(&mut self, server: Uuid) -> u64 {
        self.epochs += 1;
        let server = self.servers.entry(server).or_default();
        server.epoch = self.epochs;
        server.is_linked = true;
        self.epochs
    }

    /// A connection of another server ended. Its peers are kept for a while.
    pub(super) fn unlinked(&mut self, server: Uuid, epoch: u64) {
        if let Some(server) = self.servers.get_mut(&server)
            && server.epoch == epoch
        {
            server.is_linked = false;
        }
    }

    /// Forgets the peers of a server, unless it has connected again.
    pub(super) fn forget(&mut self, coordinator: &mut Coordinator, server: Uuid, epoch: u64) -> Vec<Output> {
        let Some(known) = self.servers.get(&server).filter(|known| known.epoch == epoch && !known.is_linked)
        else {
            return Vec::new();
        };
        let ids: Vec<_> = known.peers.keys().copied().collect();
        let outputs =
            ids.into_iter().flat_map(|id| self.peer_gone(coordinator, server, id, Kind::Lost)).collect();
        self.servers.remove(&server);
        outputs
    }

    /// Whether this is the newest connection of a server.
    pub(super) fn is_newest(&self, server: Uuid, epoch: u64) -> bool {
        self.servers.get(&server).is_some_and(|known| known.epoch == epoch)
    }

    /// Peers of other servers.
    pub(super) fn peers(&self) -> usize {
        self.servers.values().map(|server| server.peers.len()).sum()
    }

    /// Takes a frame of another server.
    ///
    /// # Errors
    /// [`TooMany`].
    pub(super) fn receive(
        &mut self,
        coordinator: &mut Coordinator,
        server: Uuid,
        frame: &Frame<'_>,
    ) -> Result<Vec<Output>, TooMany> {
        match *frame {
            Frame::Peer { id, number, node } => self.peer(coordinator, server, id, number, node),
            Frame::PeerGone { id, is_revoked } => {
                let kind = if is_revoked { Kind::Disconnected } else { Kind::Lost };
                Ok(self.peer_gone(coordinator, server, id, kind))
            }
            Frame::Tunnel { from, to, exists } => self.tunnel(coordinator, server, from, to, exists),
            Frame::Ready { from, to } => {
                let ready = vec![ReadyForHandshake { id: to.as_bytes().to_vec() }];
                let request =
                    CoordinateRequest { ready_for_handshake: ready, ..CoordinateRequest::default() };
                let connection =
                    self.servers.get(&server).and_then(|known| known.peers.get(&from)?.connection);
                Ok(connection.map(|connection| coordinator.request(connection, request)).unwrap_or_default())
            }
            Frame::Complete => Ok(self.complete(coordinator, server)),
            _ => Ok(Vec::new()),
        }
    }

    fn peer(
        &mut self,
        coordinator: &mut Coordinator,
        server: Uuid,
        id: Uuid,
        number: u64,
        node: &[u8],
    ) -> Result<Vec<Output>, TooMany> {
        self.clock = self.clock.max(number);
        let Some(known) = self.servers.get_mut(&server) else { return Ok(Vec::new()) };
        if known.peers.len() >= MOST && !known.peers.contains_key(&id) {
            return Err(TooMany);
        }
        let peer = known.peers.entry(id).or_default();
        peer.number = number;
        peer.epoch = known.epoch;
        peer.node = node.to_vec();
        let open = peer.connection.filter(|connection| coordinator.is_open(*connection));
        Ok(match (open, update(node)) {
            (Some(connection), Some(request)) => coordinator.request(connection, request),
            (Some(_), None) => Vec::new(),
            (None, _) => self.elect(coordinator, id),
        })
    }

    fn peer_gone(
        &mut self,
        coordinator: &mut Coordinator,
        server: Uuid,
        id: Uuid,
        kind: Kind,
    ) -> Vec<Output> {
        let Some(known) = self.servers.get_mut(&server) else { return Vec::new() };
        let Some(peer) = known.peers.remove(&id) else { return Vec::new() };
        known.tunnels -= peer.tunnels.len();
        let Some(connection) = peer.connection else { return Vec::new() };
        let mut outputs = end(coordinator, connection, kind);
        outputs.extend(self.elect(coordinator, id));
        outputs
    }

    fn tunnel(
        &mut self,
        coordinator: &mut Coordinator,
        server: Uuid,
        from: Uuid,
        to: Uuid,
        exists: bool,
    ) -> Result<Vec<Output>, TooMany> {
        let Some(known) = self.servers.get_mut(&server) else { return Ok(Vec::new()) };
        let Some(peer) = known.peers.get_mut(&from) else { return Ok(Vec::new()) };
        if exists {
            if peer.tunnels.insert(to, known.epoch).is_none() {
                known.tunnels += 1;
            }
            if known.tunnels > MOST {
                return Err(TooMany);
            }
        } else if peer.tunnels.remove(&to).is_some() {
            known.tunnels -= 1;
        }
        let request = tunnel(to, exists);
        Ok(peer.connection.map(|connection| coordinator.request(connection, request)).unwrap_or_default())
    }

    /// A server has told of everything that it has. What it told on an earlier connection and not again ended in between; the
    /// right to connect may have ended, too.
    fn complete(&mut self, coordinator: &mut Coordinator, server: Uuid) -> Vec<Output> {
        let Some(known) = self.servers.get(&server) else { return Vec::new() };
        let epoch = known.epoch;
        let gone: Vec<_> =
            known.peers.iter().filter(|(_, peer)| peer.epoch != epoch).map(|(id, _)| *id).collect();
        let mut closed = Vec::new();
        for (id, peer) in known.peers.iter().filter(|(_, peer)| peer.epoch == epoch) {
            let old = peer.tunnels.iter().filter(|(_, told)| **told != epoch);
            closed.extend(old.map(|(to, _)| (*id, *to)));
        }
        let mut outputs = Vec::new();
        for id in gone {
            outputs.extend(self.peer_gone(coordinator, server, id, Kind::Disconnected));
        }
        for (from, to) in closed {
            outputs.extend(self.tunnel(coordinator, server, from, to, false).unwrap_or_default());
        }
        outputs
    }

    /// Lets the newest connection of a peer count. One of a server that is not connected any more never begins to: its right
    /// to connect may have ended.
    fn elect(&mut self, coordinator: &mut Coordinator, id: Uuid) -> Vec<Output> {
        let linked = self.servers.iter().filter(|(_, known)| known.is_linked);
        let elsewhere = linked.filter_map(|(server, known)| Some((known.peers.get(&id)?.number, *server)));
        let Some((number, server)) = elsewhere.max() else { return Vec::new() };
        if self.here.get(&id).is_some_and(|here| *here > number) {
            return Vec::new();
        }
        let Some(peer) = self.servers.get_mut(&server).and_then(|known| known.peers.get_mut(&id)) else {
            return Vec::new();
        };
        if peer.connection.is_some_and(|connection| coordinator.is_open(connection)) {
            return Vec::new();
        }
        let (connection, mut outputs) = coordinator.connect(id, super::Authorization::OtherServer);
        peer.connection = Some(connection);
        if let Some(request) = update(&peer.node) {
            outputs.extend(coordinator.request(connection, request));
        }
        for to in peer.tunnels.keys() {
            outputs.extend(coordinator.request(connection, tunnel(*to, true)));
        }
        outputs
    }
}

impl Server {
    /// Whether a peer counts as connected to it.
    fn has(&self, id: Uuid, coordinator: &Coordinator) -> bool {
        let connection = self.peers.get(&id).and_then(|peer| peer.connection);
        connection.is_some_and(|connection| coordinator.is_open(connection))
    }
}
