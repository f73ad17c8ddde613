//! One peer's TCP: a smoltcp interface and the sockets of its connections.
//!
//! Each peer has its own, so that a packet is matched against that peer's sockets only, replies can go to nobody else, and all of
//! it goes with the peer. Nothing of it exists before the first connection.

use std::collections::HashMap;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::time::Duration;

use smoltcp::iface::{Config, Interface, PollResult, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{self, State};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr, IpEndpoint, IpListenEndpoint};
use tokio::time::Instant;

use super::sequence::SentSequences;
use super::tunnel::{Outbox, Tunnel};
use crate::key::random;

/// Longest IP packet in bytes: what official peers use.
pub(super) const MTU: usize = 1280;
/// Connections with one peer.
const CONNECTIONS: usize = 4096;
/// How long a connection whose stream was dropped may make no progress: longer than the longest pause between two attempts to
/// send again, of 60 s.
const LINGER_TIMEOUT: Duration = Duration::from_secs(180);
/// How long the other side may leave data unacknowledged. A laptop may sleep for an hour.
const ACK_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);
/// The shortest time between two calls without a cause.
const MIN_DELAY: Duration = Duration::from_millis(1);
/// Ports that `connect` takes.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 49152..=65535;

/// Both ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    pub(super) local: SocketAddrV6,
    pub(super) remote: SocketAddrV6,
}

/// The TCP stack of one peer.
pub(super) struct Stack {
    interface: Interface,
    sockets: SocketSet<'static>,
    flows: HashMap<Flow, SocketHandle>,
    sent: SentSequences,
    /// Connections whose streams were dropped.
    detached: Vec<Detached>,
    next_port: u16,
    /// Whether a packet could not be sent because the relay takes no more.
    pub(super) is_blocked: bool,
    buffer: usize,
}

/// A connection without a stream.
struct Detached {
    handle: SocketHandle,
    flow: Flow,
    /// When it is ended by force, unless it gets rid of what was written to it.
    until: Instant,
    unsent: usize,
}

/// Where a peer's packets go.
pub(super) struct Egress<'a> {
    pub(super) tunnel: &'a mut Tunnel,
    pub(super) out: &'a mut Outbox,
    pub(super) now: Instant,
}

/// The tunnel as smoltcp's network card.
struct Card<'a> {
    tunnel: &'a mut Tunnel,
    out: &'a mut Outbox,
    now: Instant,
    sent: &'a mut SentSequences,
    incoming: Option<&'a [u8]>,
    is_blocked: bool,
}

impl<'a> Card<'a> {
    fn new(egress: &'a mut Egress<'_>, sent: &'a mut SentSequences, incoming: Option<&'a [u8]>) -> Self {
        Self { tunnel: egress.tunnel, out: egress.out, now: egress.now, sent, incoming, is_blocked: false }
    }

    fn outgoing(&mut self) -> Outgoing<'_> {
        Outgoing { tunnel: self.tunnel, out: self.out, now: self.now, sent: self.sent }
    }
}

struct Incoming<'a>(&'a [u8]);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

struct Outgoing<'a> {
    tunnel: &'a mut Tunnel,
    out: &'a mut Outbox,
    now: Instant,
    sent: &'a mut SentSequences,
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let mut space = [0; MTU];
        let packet = &mut space[..length];
        let result = write(packet);
        self.sent.correct(packet);
        self.tunnel.send(packet, self.out, self.now);
        result
    }
}

impl Device for Card<'_> {
    type RxToken<'a>
        = Incoming<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        let packet = self.incoming.take()?;
        Some((Incoming(packet), self.outgoing()))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Outgoing<'_>> {
        if !self.out.has_room() {
            self.is_blocked = true;
            return None;
        }
        Some(self.outgoing())
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = MTU;
        // What arrives was authenticated by the tunnel.
        capabilities.checksum.tcp = Checksum::Tx;
        capabilities
    }
}

/// smoltcp counts from any moment.
fn time(now: Instant, epoch: Instant) -> smoltcp::time::Instant {
    let micros = now.saturating_duration_since(epoch).as_micros();
    smoltcp::time::Instant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
}

fn endpoint(address: SocketAddrV6) -> IpEndpoint {
    IpEndpoint::new(IpAddress::Ipv6(*address.ip()), address.port())
}

impl Stack {
    pub(super) fn new(
        addresses: &[Ipv6Addr],
        buffer: usize,
        epoch: Instant,
        egress: &mut Egress<'_>,
    ) -> Self {
        let seed = random();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = u64::from_le_bytes(seed);
        let now = time(egress.now, epoch);
        let mut interface =
            Interface::new(config, &mut Card::new(egress, &mut SentSequences::default(), None), now);
        interface.update_ip_addrs(|list| {
            for address in addresses {
                // The prefix covers everything, so that nothing needs a route.
                let cidr = IpCidr::new(IpAddress::Ipv6(*address), 0);
                list.push(cidr).expect("a node has no more addresses than the interface takes");
            }
        });
        let [low, high, ..] = seed;
        Self {
            interface,
            sockets: SocketSet::new(Vec::new()),
            flows: HashMap::new(),
            sent: SentSequences::default(),
            detached: Vec::new(),
            next_port: EPHEMERAL.start() + u16::from_le_bytes([low, high]) % 16_000,
            is_blocked: false,
            buffer,
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.flows.len()
    }

    pub(super) fn has_room(&self) -> bool {
        self.flows.len() < CONNECTIONS
    }

    pub(super) fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Whether a packet that asks for a connection belongs to one that exists. One that only waits for late packets makes
    /// room for the new one.
    pub(super) fn has_connection(&mut self, flow: Flow) -> bool {
        let Some(handle) = self.flows.get(&flow).copied() else { return false };
        let is_over = matches!(self.socket(handle).state(), State::TimeWait | State::Closed);
        if is_over && self.detached.iter().any(|detached| detached.handle == handle) {
            self.remove(handle, flow);
            return false;
        }
        true
    }

    fn remove(&mut self, handle: SocketHandle, flow: Flow) {
        self.flows.remove(&flow);
        self.sent.forget(flow);
        self.detached.retain(|detached| detached.handle != handle);
        self.sockets.remove(handle);
    }

    fn new_socket(bytes: usize) -> tcp::Socket<'static> {
        let buffer = || tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_congestion_control(tcp::CongestionControl::Cubic);
        socket.set_nagle_enabled(false);
        socket.set_timeout(Some(smoltcp::time::Duration::from_secs(ACK_TIMEOUT.as_secs())));
        socket
    }

    /// A socket for a packet that asks for a connection. It answers only once [`Self::socket`]`.pause_synack(false)` was called.
    pub(super) fn accept(&mut self, flow: Flow) -> SocketHandle {
        let mut socket = Self::new_socket(self.buffer);
        socket.pause_synack(true);
        let local = IpListenEndpoint::from(endpoint(flow.local));
        socket.listen(local).expect("a new socket can listen, and port 0 was refused");
        let handle = self.sockets.add(socket);
        self.flows.insert(flow, handle);
        handle
    }

    /// Begins a connection from a free port, with `buffer` bytes in each direction if they are given; none when there is none.
    pub(super) fn connect(
        &mut self,
        local: Ipv6Addr,
        remote: SocketAddrV6,
        buffer: Option<usize>,
    ) -> Option<(SocketHandle, Flow)> {
        if !self.has_room() {
            return None;
        }
        let flow = (0..=EPHEMERAL.end() - EPHEMERAL.start()).find_map(|_| {
            let port = self.next_port;
            self.next_port = if port == *EPHEMERAL.end() { *EPHEMERAL.start() } else { port + 1 };
            let flow = Flow { local: SocketAddrV6::new(local, port, 0, 0), remote };
            (!self.flows.contains_key(&flow)).then_some(flow)
        })?;
        let mut socket = Self::new_socket(buffer.unwrap_or(self.buffer));
        socket.connect(self.interface.context(), endpoint(remote), endpoint(flow.local)).ok()?;
        let handle = self.sockets.add(socket);
        self.flows.insert(flow, handle);
        Some((handle, flow))
    }

    /// The stream of a connection was dropped.
    pub(super) fn detach(&mut self, handle: SocketHandle, flow: Flow, now: Instant) {
        let socket = self.socket(handle);
        if socket.can_recv() || matches!(socket.state(), State::SynSent | State::SynReceived) {
            // What was sent and is not read by anybody: the other side must know.
            socket.abort();
        } else {
            socket.close();
        }
        let unsent = socket.send_queue();
        self.detached.push(Detached { handle, flow, until: now + LINGER_TIMEOUT, unsent });
    }

    /// Ends every connection, so that their streams notice.
    pub(super) fn abort_all(&mut self) {
        for handle in self.flows.values() {
            self.sockets.get_mut::<tcp::Socket<'_>>(*handle).abort();
        }
    }

    /// Takes an IP packet of the peer.
    pub(super) fn receive(&mut self, packet: &[u8], epoch: Instant, egress: &mut Egress<'_>) {
        let now = time(egress.now, epoch);
        let mut card = Card::new(egress, &mut self.sent, Some(packet));
        self.interface.poll_ingress_single(now, &mut card, &mut self.sockets);
    }

    /// Sends what is due, as far as the relay takes it. When it must be called next.
    pub(super) fn send(&mut self, epoch: Instant, egress: &mut Egress<'_>) -> Option<Instant> {
        let now = time(egress.now, epoch);
        let mut card = Card::new(egress, &mut self.sent, None);
        while self.interface.poll_egress(now, &mut card, &mut self.sockets) == PollResult::SocketStateChanged
            && !card.is_blocked
        {}
        self.is_blocked = card.is_blocked;
        self.reap(egress.now);
        if self.is_blocked {
            // It goes on when the relay takes more.
            return self.linger();
        }
        let due = self.interface.poll_at(now, &self.sockets).map(|at| {
            let micros = u64::try_from(at.total_micros()).unwrap_or_default();
            // Everything that was due has been sent; a moment keeps an error in that from spinning.
            (epoch + Duration::from_micros(micros)).max(egress.now + MIN_DELAY)
        });
        due.into_iter().chain(self.linger()).min()
    }

    fn linger(&self) -> Option<Instant> {
        self.detached.iter().map(|detached| detached.until).min()
    }

    /// Removes connections that are over and have no stream.
    fn reap(&mut self, now: Instant) {
        if self.detached.is_empty() {
            return;
        }
        let mut over = Vec::new();
        for detached in &mut self.detached {
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(detached.handle);
            let is_closed = socket.state() == State::Closed;
            if socket.send_queue() < detached.unsent {
                detached.unsent = socket.send_queue();
                detached.until = now + LINGER_TIMEOUT;
            }
            if is_closed && (socket.remote_endpoint().is_none() || now >= detached.until) {
                over.push((detached.handle, detached.flow));
            } else if !is_closed && (socket.can_recv() || now >= detached.until) {
                // Nobody reads it, or nobody takes it. The reset goes with the next packets.
                socket.abort();
            }
        }
        for (handle, flow) in over {
            self.remove(handle, flow);
        }
    }
}
