//! The state of a node: peers, their tunnels and connections, and who waits for what. It does no I/O of its own.
//!
//! Datagrams of the relay go in (`inbound`), frames for the relay lie in the outboxes afterwards. Everything runs under one lock, so that a
//! packet is decrypted, handled and answered where it is read, without a copy or another task.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddrV6};
use std::sync::Arc;

use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::ip::Packet;
use super::stack::{Egress, Flow, Stack};
use super::tunnel::{Outbox, Tunnel};
use super::udp::Datagram;
use crate::disco;
use crate::key::{DiscoPrivate, DiscoPublic, NodePrivate, NodePublic, SharedBox};
use crate::peer::{Activity, PeerConfig};
use crate::tsmp;

/// A peer as it was programmed. A peer with another key is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PeerSerial(u64);

/// One connection of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConnectionRef {
    pub(super) peer: PeerSerial,
    pub(super) handle: SocketHandle,
    pub(super) flow: Flow,
}

pub(super) struct Peer {
    pub(super) config: PeerConfig,
    pub(super) tunnel: Option<Box<Tunnel>>,
    pub(super) stack: Option<Box<Stack>>,
    pub(super) disco: Option<Box<SharedBox>>,
    /// When it must be looked after.
    due: Option<Instant>,
}

/// A relay that this node uses.
#[derive(Debug, Default)]
pub(super) struct Region {
    pub(super) out: Outbox,
    pub(super) wake: Arc<Notify>,
    /// Peers whose packets wait until the relay takes more, in the order of their turns.
    blocked: VecDeque<PeerSerial>,
}

/// An answer to a ping: when it came, and the region of the relay.
pub(super) type PongSender = oneshot::Sender<Instant>;

pub(super) struct Engine {
    pub(super) private: NodePrivate,
    pub(super) disco: DiscoPrivate,
    pub(super) disco_public: DiscoPublic,
    pub(super) addresses: Vec<Ipv6Addr>,
    buffer: usize,
    pub(super) epoch: Instant,
    pub(super) peers: HashMap<PeerSerial, Peer>,
    by_id: HashMap<Uuid, PeerSerial>,
    pub(super) by_key: HashMap<NodePublic, PeerSerial>,
    by_address: HashMap<Ipv6Addr, PeerSerial>,
    pub(super) regions: HashMap<i32, Region>,
    due: BTreeSet<(Instant, PeerSerial)>,
    /// Wakes the task that waits for the first of `due`.
    pub(super) timer: Arc<Notify>,
    pub(super) listeners: HashMap<u16, mpsc::Sender<ConnectionRef>>,
    pub(super) any_listener: Option<mpsc::Sender<ConnectionRef>>,
    pub(super) udp: HashMap<u16, mpsc::Sender<Datagram>>,
    pub(super) any_udp: Option<mpsc::Sender<Datagram>>,
    pub(super) tsmp_pings: HashMap<[u8; tsmp::DATA], PongSender>,
    pub(super) disco_pings: HashMap<[u8; disco::TRANSACTION], PongSender>,
    /// Peers that sent something since the last flush.
    pub(super) touched: Vec<PeerSerial>,
    next_serial: u64,
    next_index: u32,
}

impl Engine {
    pub(super) fn new(
        private: NodePrivate,
        disco: DiscoPrivate,
        addresses: Vec<Ipv6Addr>,
        buffer: usize,
    ) -> Self {
        Self {
            disco_public: disco.public(),
            private,
            disco,
            addresses,
            buffer,
            epoch: Instant::now(),
            peers: HashMap::new(),
            by_id: HashMap::new(),
            by_key: HashMap::new(),
            by_address: HashMap::new(),
            regions: HashMap::new(),
            due: BTreeSet::new(),
            timer: Arc::default(),
            listeners: HashMap::new(),
            any_listener: None,
            udp: HashMap::new(),
            any_udp: None,
            tsmp_pings: HashMap::new(),
            disco_pings: HashMap::new(),
            touched: Vec::new(),
            next_serial: 0,
            next_index: 0,
        }
    }

    /// Programs a peer. The same key keeps its tunnel and connections.
    pub(super) fn set_peer(&mut self, config: PeerConfig) {
        let known = self.by_id.get(&config.id).copied();
        let same = known.filter(|serial| self.peers[serial].config.key == config.key);
        if let (Some(serial), None) = (known, same) {
            self.remove(serial);
        }
        if let Some(other) = self.by_key.get(&config.key).copied().filter(|other| Some(*other) != same) {
            // A key is one peer's. The coordinator gave the same process a new id.
            self.remove(other);
        }
        let serial = same.unwrap_or_else(|| {
            self.next_serial += 1;
            PeerSerial(self.next_serial)
        });
        self.by_id.insert(config.id, serial);
        self.by_key.insert(config.key, serial);
        self.by_address.retain(|_, owner| *owner != serial);
        for address in &config.addresses {
            // The first peer that has an address keeps it, unless the address is derived from the other's id.
            let is_own = crate::address::of_agent(config.id).contains(address);
            if is_own || !self.by_address.contains_key(address) {
                self.by_address.insert(*address, serial);
            }
        }
        match self.peers.get_mut(&serial) {
            Some(peer) => {
                if peer.config.disco != config.disco {
                    peer.disco = None;
                }
                peer.config = config;
            }
            None => {
                self.peers.insert(serial, Peer { config, tunnel: None, stack: None, disco: None, due: None });
            }
        }
    }

    pub(super) fn remove_peer(&mut self, id: Uuid) {
        if let Some(serial) = self.by_id.get(&id).copied() {
            self.remove(serial);
        }
    }

    pub(super) fn remove_all(&mut self) {
        let all: Vec<_> = self.peers.keys().copied().collect();
        for serial in all {
            self.remove(serial);
        }
    }

    fn remove(&mut self, serial: PeerSerial) {
        let Some(mut peer) = self.peers.remove(&serial) else { return };
        if let Some(stack) = &mut peer.stack {
            // Their streams are woken, and find no peer.
            stack.abort_all();
        }
        if let Some(due) = peer.due {
            self.due.remove(&(due, serial));
        }
        self.by_id.retain(|_, owner| *owner != serial);
        self.by_key.retain(|_, owner| *owner != serial);
        self.by_address.retain(|_, owner| *owner != serial);
        for region in self.regions.values_mut() {
            region.blocked.retain(|blocked| *blocked != serial);
        }
    }

    /// The regions whose relays are needed besides the home region's.
    pub(super) fn peer_regions(&self) -> BTreeSet<i32> {
        self.peers.values().map(|peer| peer.config.region).collect()
    }

    pub(super) fn peer_at(&self, address: Ipv6Addr) -> Option<PeerSerial> {
        self.by_address.get(&address).copied()
    }

    pub(super) fn peer_count(&self) -> usize {
        self.peers.len()
    }

    pub(super) fn activity(&self, id: Uuid) -> Activity {
        let Some(peer) = self.by_id.get(&id).and_then(|serial| self.peers.get(serial)) else {
            return Activity::default();
        };
        Activity {
            last_handshake: peer.tunnel.as_ref().and_then(|tunnel| tunnel.established()),
            connections: peer.stack.as_ref().map_or(0, |stack| stack.connections()),
        }
    }

    /// Bytes received from and sent to a peer, inside the tunnel.
    pub(super) fn traffic(&self, id: Uuid) -> Option<(u64, u64)> {
        let peer = self.peers.get(self.by_id.get(&id)?)?;
        Some(peer.tunnel.as_ref().map_or((0, 0), |tunnel| (tunnel.received, tunnel.sent)))
    }

    /// What every peer with a tunnel has sent and received.
    pub(super) fn all_traffic(&self) -> Vec<super::PeerTraffic> {
        let with_tunnel = self.peers.values().filter_map(|peer| Some((peer, peer.tunnel.as_ref()?)));
        let traffic = with_tunnel.map(|(peer, tunnel)| super::PeerTraffic {
            id: peer.config.id,
            address: peer.config.addresses.first().copied(),
            received: tunnel.received,
            sent: tunnel.sent,
            connections: peer.stack.as_ref().map_or(0, |stack| stack.connections()),
        });
        traffic.collect()
    }

    /// The own address that a packet to `remote` comes from.
    pub(super) fn source_for(&self, remote: Ipv6Addr) -> Option<Ipv6Addr> {
        let same_prefix = |address: &&Ipv6Addr| address.segments()[..3] == remote.segments()[..3];
        self.addresses.iter().find(same_prefix).or(self.addresses.first()).copied()
    }

    /// Sends what the datagrams since the last call have caused.
    pub(super) fn flush_touched(&mut self, now: Instant) {
        for serial in std::mem::take(&mut self.touched) {
            self.flush(serial, now);
        }
        self.wake_writers();
    }

    /// Sends an IP packet outside TCP. It is dropped when the relay takes no more.
    pub(super) fn send_ip(&mut self, serial: PeerSerial, packet: Packet<'_>, now: Instant) {
        if let Some(bytes) = packet.to_bytes() {
            self.send_bytes(serial, &bytes, now);
        }
    }

    /// Sends the bytes of an IP packet outside TCP.
    pub(super) fn send_bytes(&mut self, serial: PeerSerial, bytes: &[u8], now: Instant) {
        let Some((peer, out)) = self.with_tunnel(serial, now) else { return };
        if let Some(tunnel) = &mut peer.tunnel {
            tunnel.send(bytes, out, now);
        }
        self.schedule_tick(serial, now);
        self.wake_writers();
    }

    /// Sends a disco ping.
    pub(super) fn send_disco_ping(&mut self, serial: PeerSerial, transaction: [u8; disco::TRANSACTION]) {
        let (disco, node) = (&self.disco, self.private.public());
        let Some(peer) = self.peers.get_mut(&serial) else { return };
        let key = peer.config.disco;
        let shared = peer.disco.get_or_insert_with(|| Box::new(disco.shared(&key)));
        let ping = disco::Message::Ping { transaction, node: Some(node) };
        let packet = disco::packet(&self.disco_public, shared, &ping);
        if let Some(region) = self.regions.get_mut(&peer.config.region) {
            region.out.send(peer.config.key, &packet);
        }
        self.wake_writers();
    }

    /// Begins a connection.
    pub(super) fn connect(
        &mut self,
        serial: PeerSerial,
        remote: SocketAddrV6,
        buffer: Option<usize>,
        now: Instant,
    ) -> Option<ConnectionRef> {
        let local = self.source_for(*remote.ip())?;
        if !self.ensure_stack(serial, now) {
            return None;
        }
        let stack = self.peers.get_mut(&serial)?.stack.as_mut()?;
        let (handle, flow) = stack.connect(local, remote, buffer)?;
        self.flush(serial, now);
        Some(ConnectionRef { peer: serial, handle, flow })
    }

    /// The socket of a connection; none when its peer is gone.
    pub(super) fn socket(&mut self, connection: ConnectionRef) -> Option<&mut tcp::Socket<'static>> {
        let stack = self.peers.get_mut(&connection.peer)?.stack.as_mut()?;
        Some(stack.socket(connection.handle))
    }

    /// The stream of a connection was dropped.
    pub(super) fn detach(&mut self, connection: ConnectionRef, now: Instant) {
        let peer = self.peers.get_mut(&connection.peer);
        if let Some(stack) = peer.and_then(|peer| peer.stack.as_mut()) {
            stack.detach(connection.handle, connection.flow, now);
            self.flush(connection.peer, now);
        }
    }

    /// Begins a handshake with a peer.
    pub(super) fn rekey(&mut self, id: Uuid, now: Instant) {
        let Some(serial) = self.by_id.get(&id).copied() else { return };
        if let Some((peer, out)) = self.with_tunnel(serial, now)
            && let Some(tunnel) = &mut peer.tunnel
        {
            tunnel.rekey(out, now);
        }
        self.wake_writers();
    }

    /// A peer that has a tunnel, and the outbox of its relay.
    pub(super) fn with_tunnel(
        &mut self,
        serial: PeerSerial,
        now: Instant,
    ) -> Option<(&mut Peer, &mut Outbox)> {
        let peer = self.peers.get_mut(&serial)?;
        let out = &mut self.regions.get_mut(&peer.config.region)?.out;
        if peer.tunnel.is_none() {
            self.next_index += 1;
            peer.tunnel = Some(Box::new(Tunnel::new(&self.private, peer.config.key, self.next_index, now)));
        }
        Some((peer, out))
    }

    pub(super) fn ensure_stack(&mut self, serial: PeerSerial, now: Instant) -> bool {
        let (epoch, buffer) = (self.epoch, self.buffer);
        let addresses = self.addresses.clone();
        let Some((peer, out)) = self.with_tunnel(serial, now) else { return false };
        if let (None, Some(tunnel)) = (&peer.stack, &mut peer.tunnel) {
            let stack = Stack::new(&addresses, buffer, epoch, &mut Egress { tunnel, out, now });
            peer.stack = Some(Box::new(stack));
        }
        true
    }

    /// Sends what a peer's connections have to send.
    pub(super) fn flush(&mut self, serial: PeerSerial, now: Instant) {
        let epoch = self.epoch;
        let Some((peer, out)) = self.with_tunnel(serial, now) else { return };
        let (Some(stack), Some(tunnel)) = (&mut peer.stack, &mut peer.tunnel) else {
            self.schedule_tick(serial, now);
            self.wake_writers();
            return;
        };
        let next = stack.send(epoch, &mut Egress { tunnel, out, now });
        let due = next.into_iter().chain(tunnel.next_tick(now)).min();
        let (is_blocked, region) = (stack.is_blocked, peer.config.region);
        if let Some(region) = self.regions.get_mut(&region) {
            if !is_blocked {
                region.blocked.retain(|blocked| *blocked != serial);
            } else if !region.blocked.contains(&serial) {
                region.blocked.push_back(serial);
            }
        }
        self.schedule(serial, due);
        self.wake_writers();
    }

    /// The same by its id.
    pub(super) fn flush_peer(&mut self, id: Uuid, now: Instant) {
        if let Some(serial) = self.by_id.get(&id).copied()
            && self.peers.get(&serial).is_some_and(|peer| peer.stack.is_some())
        {
            self.flush(serial, now);
        }
    }

    /// Sends what waits in the outboxes.
    pub(super) fn wake_writers(&self) {
        for region in self.regions.values() {
            if !region.out.frames.is_empty() {
                region.wake.notify_one();
            }
        }
    }

    /// The relay takes more. One peer that fills the room again waits behind the others.
    pub(super) fn unblock(&mut self, region: i32, now: Instant) {
        while let Some(state) = self.regions.get_mut(&region).filter(|state| state.out.has_room())
            && let Some(serial) = state.blocked.pop_front()
        {
            self.flush(serial, now);
        }
    }

    /// The connection to a relay began or ended.
    pub(super) fn set_relay(&mut self, region: i32, is_up: bool, now: Instant) {
        if let Some(region) = self.regions.get_mut(&region) {
            region.out.is_up = is_up;
            // What the old connection did not take is stale.
            region.out.frames = Vec::new();
        }
        if is_up {
            let is_here = |peer: &Peer| peer.config.region == region && peer.stack.is_some();
            let here: Vec<_> =
                self.peers.iter().filter(|(_, peer)| is_here(peer)).map(|(serial, _)| *serial).collect();
            for serial in here {
                self.flush(serial, now);
            }
        }
    }

    /// Looks after the peers that are due. When that must happen next.
    pub(super) fn run_timers(&mut self, now: Instant) -> Option<Instant> {
        while let Some((due, serial)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.due.remove(&(due, serial));
            if let Some(peer) = self.peers.get_mut(&serial) {
                peer.due = None;
            }
            if let Some((peer, out)) = self.with_tunnel(serial, now)
                && let Some(tunnel) = &mut peer.tunnel
                && tunnel.next_tick(now).is_some_and(|at| at <= now)
            {
                tunnel.tick(out, now);
            }
            self.flush(serial, now);
        }
        self.due.first().map(|(due, _)| *due)
    }

    /// Keeps the timers of a tunnel running, beside what its connections need.
    fn schedule_tick(&mut self, serial: PeerSerial, now: Instant) {
        let Some(peer) = self.peers.get(&serial) else { return };
        let tick = peer.tunnel.as_ref().and_then(|tunnel| tunnel.next_tick(now));
        let due = tick.into_iter().chain(peer.due).min();
        self.schedule(serial, due);
    }

    fn schedule(&mut self, serial: PeerSerial, due: Option<Instant>) {
        let Some(peer) = self.peers.get_mut(&serial) else { return };
        if peer.due == due {
            return;
        }
        let first = self.due.first().map(|(due, _)| *due);
        if let Some(old) = std::mem::replace(&mut peer.due, due) {
            self.due.remove(&(old, serial));
        }
        if let Some(due) = due {
            self.due.insert((due, serial));
            if first.is_none_or(|first| due < first) {
                self.timer.notify_one();
            }
        }
    }
}
