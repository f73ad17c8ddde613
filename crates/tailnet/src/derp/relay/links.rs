//! The relays of other servers: which nodes are connected there, and what waits to be sent there.
//!
//! A packet for a node of another server goes over the connection to that server, which hands it to the node and never sends it on.
//! Each relay tells the others which keys are connected to it; a key that nobody has told of is unknown.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use uuid::Uuid;

use super::connection::WRITE;
use super::{Inner, Relay};
use crate::derp::queue::FairQueue;
use crate::disco;
use crate::key::{LENGTH, NodePublic};
use crate::mesh::frame::Frame;

/// Keys that another server may have. Further ones are unknown here.
const KEYS: usize = 200_000;
/// Packets and bytes that wait for one server.
const PACKETS: usize = 16_384;
const BYTES: usize = 32 << 20;
/// Notifications that a sender has left, which wait for one server.
const SENDERS_GONE: usize = 4096;

/// More keys came and went than another server takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("more than {KEYS} nodes wait to be announced to another server")]
pub struct TooMany;

/// The other servers.
#[derive(Debug, Default)]
pub(super) struct Links {
    outgoing: RwLock<HashMap<Uuid, Arc<Link>>>,
    remote: RwLock<Remote>,
}

/// The keys of other servers.
#[derive(Debug, Default)]
struct Remote {
    /// The servers of a key; the newest is the last.
    keys: HashMap<NodePublic, Vec<Uuid>>,
    servers: HashMap<Uuid, Server>,
    /// Connections of other servers so far.
    connections: u64,
}

#[derive(Debug, Default)]
struct Server {
    /// The number of its newest connection; what an older one still tells does not count.
    connection: u64,
    keys: usize,
}

/// What waits for one server.
#[derive(Debug)]
pub(crate) struct Link {
    waiting: Mutex<Waiting>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Waiting {
    /// Keys whose presence may have changed.
    keys: BTreeSet<NodePublic>,
    /// Receiver and sender.
    senders_gone: VecDeque<(NodePublic, NodePublic)>,
    /// Each begins with the receiver's key.
    packets: FairQueue,
    disco: FairQueue,
}

impl Link {
    fn new(wake: Arc<Notify>, keys: BTreeSet<NodePublic>) -> Self {
        let waiting = Waiting {
            keys,
            senders_gone: VecDeque::new(),
            packets: FairQueue::new(PACKETS, BYTES),
            disco: FairQueue::new(PACKETS / 4, BYTES / 4),
        };
        Self { waiting: Mutex::new(waiting), wake }
    }

    pub(super) fn push(&self, relay: &Inner, to: NodePublic, from: NodePublic, packet: &[u8]) {
        let mut waiting = self.waiting.lock();
        let queue = if packet.starts_with(&disco::MAGIC) { &mut waiting.disco } else { &mut waiting.packets };
        let dropped = queue.push(from, Bytes::from([&to.as_bytes()[..], packet].concat()), usize::MAX);
        drop(waiting);
        relay.count(packet, dropped);
        self.wake.notify_one();
    }

    pub(super) fn sender_gone(&self, to: NodePublic, peer: NodePublic) {
        let mut waiting = self.waiting.lock();
        if waiting.senders_gone.len() < SENDERS_GONE {
            waiting.senders_gone.push_back((to, peer));
            self.wake.notify_one();
        }
    }
}

impl Links {
    /// The connection to the server that a key receives at, if it is another one's.
    pub(super) fn towards(&self, key: &NodePublic) -> Option<Arc<Link>> {
        let server = *self.remote.read().keys.get(key)?.last()?;
        self.outgoing.read().get(&server).cloned()
    }

    /// A key may have come or gone here.
    pub(super) fn changed(&self, key: NodePublic) {
        for link in self.outgoing.read().values() {
            link.waiting.lock().keys.insert(key);
            link.wake.notify_one();
        }
    }

    /// Keys of other servers.
    pub(super) fn keys(&self) -> usize {
        self.remote.read().keys.len()
    }
}

impl Remote {
    /// Adds a key; whether there is room for it.
    fn add(&mut self, server: Uuid, key: NodePublic) -> bool {
        let Some(known) = self.servers.get_mut(&server) else { return false };
        let is_known = self.keys.get(&key).is_some_and(|servers| servers.contains(&server));
        if !is_known {
            if known.keys >= KEYS {
                return false;
            }
            known.keys += 1;
        }
        let servers = self.keys.entry(key).or_default();
        servers.retain(|other| *other != server);
        servers.push(server);
        true
    }

    /// Removes a key; whether no other server has it now.
    fn remove(&mut self, server: Uuid, key: NodePublic) -> bool {
        let Some(servers) = self.keys.get_mut(&key) else { return true };
        if let Some(at) = servers.iter().position(|other| *other == server) {
            servers.remove(at);
            if let Some(known) = self.servers.get_mut(&server) {
                known.keys -= 1;
            }
        }
        let is_gone = servers.is_empty();
        if is_gone {
            self.keys.remove(&key);
        }
        is_gone
    }

    /// Removes all keys of a server. Those that no other server has.
    fn clear(&mut self, server: Uuid) -> Vec<NodePublic> {
        let mut gone = Vec::new();
        self.keys.retain(|key, servers| {
            servers.retain(|other| *other != server);
            if servers.is_empty() {
                gone.push(*key);
            }
            !servers.is_empty()
        });
        if let Some(known) = self.servers.get_mut(&server) {
            known.keys = 0;
        }
        gone
    }

    fn is_newest(&self, server: Uuid, connection: u64) -> bool {
        self.servers.get(&server).is_some_and(|known| known.connection == connection)
    }
}

impl Relay {
    /// Begins to send to another server; `wake` is notified when something waits.
    pub(crate) fn link(&self, server: Uuid, wake: Arc<Notify>) -> Sending {
        // A key that comes in between is in neither of them without the lock.
        let clients = self.inner.clients.read();
        let link = Arc::new(Link::new(wake, clients.keys().copied().collect()));
        self.inner.links.outgoing.write().insert(server, Arc::clone(&link));
        drop(clients);
        Sending { relay: self.clone(), server, link }
    }

    /// Begins to receive from another server. What an older connection of it told is forgotten.
    pub(crate) fn receive_from(&self, server: Uuid) -> Receiving {
        let mut remote = self.inner.links.remote.write();
        remote.connections += 1;
        let connection = remote.connections;
        remote.servers.entry(server).or_default().connection = connection;
        let gone = remote.clear(server);
        drop(remote);
        gone.into_iter().for_each(|key| self.inner.receives_here(key));
        Receiving { relay: self.clone(), server, connection }
    }
}

/// A connection to another server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Sending {
    relay: Relay,
    server: Uuid,
    link: Arc<Link>,
}

impl Sending {
    /// Moves what waits into `out`: first the keys that came and went, then packets, each about [`WRITE`] bytes at once.
    ///
    /// # Errors
    /// [`TooMany`] when the other server takes it too slowly.
    pub(crate) fn gather(&self, out: &mut Vec<u8>) -> Result<(), TooMany> {
        let inner = &self.relay.inner;
        let begin = out.len();
        // The order of locks is that of `Registered`: the clients, then what waits.
        let clients = inner.clients.read();
        let mut waiting = self.link.waiting.lock();
        if waiting.keys.len() > KEYS {
            return Err(TooMany);
        }
        while out.len() - begin < WRITE
            && let Some(key) = waiting.keys.pop_first()
        {
            match clients.get(&key) {
                None => Frame::KeyLeft(key).encode(out),
                Some(same) if same.iter().any(|client| client.receives.load(Ordering::Relaxed)) => {
                    Frame::Key(key).encode(out);
                }
                // It receives at another server.
                Some(_) => {}
            }
        }
        drop(clients);
        while out.len() - begin < WRITE
            && let Some((to, peer)) = waiting.senders_gone.pop_front()
        {
            Frame::SenderGone { to, peer }.encode(out);
        }
        let begin = out.len();
        while out.len() - begin < WRITE
            && let Some((from, packet)) = waiting.disco.pop().or_else(|| waiting.packets.pop())
        {
            if let Some((to, packet)) = packet.split_first_chunk::<LENGTH>() {
                Frame::Packet { to: NodePublic::from_bytes(*to), from, packet }.encode(out);
            }
        }
        Ok(())
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        let inner = &self.relay.inner;
        let mut outgoing = inner.links.outgoing.write();
        if outgoing.get(&self.server).is_some_and(|link| Arc::ptr_eq(link, &self.link)) {
            outgoing.remove(&self.server);
        }
        drop(outgoing);
        let mut waiting = self.link.waiting.lock();
        // Nobody may add to it any more.
        waiting.packets = FairQueue::new(0, 0);
        waiting.disco = FairQueue::new(0, 0);
    }
}

/// A connection of another server, whose nodes are unknown when it is dropped.
#[derive(Debug)]
pub(crate) struct Receiving {
    relay: Relay,
    server: Uuid,
    connection: u64,
}

impl Receiving {
    /// Takes a frame; others than those of a relay are ignored.
    pub(crate) fn receive(&self, frame: &Frame<'_>) {
        let inner = &*self.relay.inner;
        match *frame {
            Frame::Key(key) => {
                let mut remote = inner.links.remote.write();
                let is_added = remote.is_newest(self.server, self.connection) && remote.add(self.server, key);
                drop(remote);
                if is_added {
                    inner.receives_elsewhere(key);
                }
            }
            Frame::KeyLeft(key) => {
                let mut remote = inner.links.remote.write();
                let is_gone =
                    remote.is_newest(self.server, self.connection) && remote.remove(self.server, key);
                drop(remote);
                if is_gone {
                    inner.receives_here(key);
                }
            }
            Frame::Packet { to, from, packet } => inner.deliver(to, from, packet),
            Frame::SenderGone { to, peer } => inner.sender_gone(to, peer),
            _ => {}
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let inner = &*self.relay.inner;
        let mut remote = inner.links.remote.write();
        if !remote.is_newest(self.server, self.connection) {
            return;
        }
        let gone = remote.clear(self.server);
        remote.servers.remove(&self.server);
        drop(remote);
        gone.into_iter().for_each(|key| inner.receives_here(key));
    }
}
