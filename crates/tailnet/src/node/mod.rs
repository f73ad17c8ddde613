//! The node: what a peer of the overlay network is made of. WireGuard, TCP and UDP in user space, over relays.
//!
//! `engine` holds the state, `tunnel` one peer's WireGuard, `stack` one peer's TCP, `link` the connection to a relay; `tcp` and
//! `udp` are what users of the node hold. Peers are given by [`Node::set_peer`]; `crate::controller` does that for a
//! coordinator.

mod engine;
mod inbound;
mod ip;
mod link;
mod sequence;
mod stack;
mod tcp;
mod tunnel;
mod udp;

use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coder_wire::bytes::BoxedStream;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use self::engine::{Engine, Region};
pub use self::tcp::{Incoming, Listener, TcpStream};
pub use self::udp::{Datagram, TEXT as UDP_TEXT, UdpSocket};
use crate::key::{DiscoPrivate, NodePrivate, random};
use crate::messages::Node as NodeMessage;
use crate::peer::{Activity, PeerConfig};
use crate::{address, disco, tsmp};

/// Addresses that a node may have.
const ADDRESSES: usize = 4;

/// A future that a trait object returns.
pub type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Makes connections to relays: what follows in the stream is DERP ([`crate::derp::upgrade`]).
pub trait Dialer: Send + Sync + 'static {
    /// Connects to the relay of a region.
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>>;
}

/// What a node is made of.
pub struct Config {
    /// Fresh for each start of an agent, and for each connection of a client.
    pub private: NodePrivate,
    /// The same.
    pub disco: DiscoPrivate,
    /// `Node.id`.
    pub id: i64,
    /// At least one, at most four.
    pub addresses: Vec<Ipv6Addr>,
    /// The region of the relay that this node stays connected to.
    pub home_region: i32,
    /// Bytes that may wait in each direction of a TCP connection. Memory is taken as it is needed.
    pub tcp_buffer: usize,
    /// Reaches the relays.
    pub dialer: Arc<dyn Dialer>,
}

impl Config {
    /// The usual node of an agent.
    #[must_use]
    pub fn agent(agent: Uuid, home_region: i32, dialer: Arc<dyn Dialer>) -> Self {
        Self::new(address::node_id(agent), address::of_agent(agent).to_vec(), home_region, dialer)
    }

    /// The usual node of a client, with a random address.
    #[must_use]
    pub fn client(home_region: i32, dialer: Arc<dyn Dialer>) -> Self {
        let id = Uuid::new_v4();
        Self::new(address::node_id(id), vec![address::of(id)], home_region, dialer)
    }

    fn new(id: i64, addresses: Vec<Ipv6Addr>, home_region: i32, dialer: Arc<dyn Dialer>) -> Self {
        Self {
            private: NodePrivate::generate(),
            disco: DiscoPrivate::generate(),
            id,
            addresses,
            home_region,
            tcp_buffer: 1 << 20,
            dialer,
        }
    }
}

/// Why there is no connection to a peer's port, or no answer to a ping.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No peer has the address.
    #[error("no peer of this node has the address {0}")]
    NoPeer(Ipv6Addr),
    /// The other side refused, or the connection was lost.
    #[error("the peer did not accept the connection")]
    Connect(#[source] io::Error),
    /// All ports or connections are in use.
    #[error("there are too many connections to the peer")]
    TooManyConnections,
    /// Nothing came back.
    #[error("the peer did not answer within {0:?}")]
    Timeout(Duration),
    /// The port has a listener.
    #[error("port {0} of this node is in use")]
    PortInUse(u16),
}

/// An answer to a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pong {
    /// From the ping to its answer.
    pub latency: Duration,
}

/// What a peer has sent and received since its tunnel exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerTraffic {
    /// The peer.
    pub id: Uuid,
    /// Its first address.
    pub address: Option<Ipv6Addr>,
    /// Bytes received from it, inside the tunnel.
    pub received: u64,
    /// Bytes sent to it.
    pub sent: u64,
    /// TCP connections now.
    pub connections: usize,
}

/// The kinds of pings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PingKind {
    /// Inside the tunnel: shows that the tunnel works.
    Tsmp,
    /// Beside the tunnel: shows that the relay and the peer are there.
    Disco,
}

/// What the node, its streams and its tasks share.
pub(crate) struct Shared {
    engine: Mutex<Engine>,
    private: NodePrivate,
    dialer: Arc<dyn Dialer>,
    home_region: i32,
    home_is_up: watch::Sender<bool>,
    /// Wakes those who wait for a peer that the coordinator has not named yet.
    peers_changed: watch::Sender<()>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock()
    }

    fn set_relay(&self, region: i32, is_up: bool) {
        self.lock().set_relay(region, is_up, Instant::now());
        if region == self.home_region {
            self.home_is_up.send_replace(is_up);
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("node", &self.private.public()).finish_non_exhaustive()
    }
}

/// A node. Clones are the same node; it ends with the last of them, and its streams with it.
#[derive(Debug, Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    message: NodeMessage,
    timers: JoinHandle<()>,
    links: Mutex<HashMap<i32, JoinHandle<()>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.timers.abort();
        for link in self.links.get_mut().values() {
            link.abort();
        }
        let mut engine = self.shared.lock();
        engine.remove_all();
        // Those who accept learn that nothing comes any more.
        engine.listeners.clear();
        engine.any_listener = None;
        engine.udp.clear();
        engine.any_udp = None;
    }
}

impl Node {
    /// Starts a node, which connects to the relay of its home region.
    ///
    /// # Panics
    /// Outside a tokio runtime, and when the number of addresses is not from one to four.
    #[must_use]
    pub fn start(config: Config) -> Self {
        assert!(
            (1..=ADDRESSES).contains(&config.addresses.len()),
            "a node has from 1 to {ADDRESSES} addresses"
        );
        let addresses: Vec<_> = config.addresses.iter().map(|address| address::to_prefix(*address)).collect();
        let message = NodeMessage {
            id: config.id,
            key: config.private.public().to_binary(),
            disco: config.disco.public().to_string(),
            preferred_derp: config.home_region,
            addresses: addresses.clone(),
            allowed_ips: addresses,
            ..NodeMessage::default()
        };
        let engine = Engine::new(config.private.clone(), config.disco, config.addresses, config.tcp_buffer);
        let timer = Arc::clone(&engine.timer);
        let shared = Arc::new(Shared {
            engine: Mutex::new(engine),
            private: config.private,
            dialer: config.dialer,
            home_region: config.home_region,
            home_is_up: watch::Sender::new(false),
            peers_changed: watch::Sender::new(()),
        });
        let timers = {
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                loop {
                    let next = shared.lock().run_timers(Instant::now());
                    match next {
                        Some(at) => tokio::select! {
                            () = tokio::time::sleep_until(at) => {}
                            () = timer.notified() => {}
                        },
                        None => timer.notified().await,
                    }
                }
            })
        };
        let node = Self { inner: Arc::new(Inner { shared, message, timers, links: Mutex::default() }) };
        node.update_links();
        node
    }

    /// Connects to the relays that the peers use, and leaves those that none uses any more.
    fn update_links(&self) {
        let mut links = self.inner.links.lock();
        let mut engine = self.inner.shared.lock();
        let mut wanted = engine.peer_regions();
        wanted.insert(self.inner.shared.home_region);
        links.retain(|region, link| {
            let keep = wanted.contains(region);
            if !keep {
                link.abort();
                engine.regions.remove(region);
            }
            keep
        });
        for region in wanted {
            links.entry(region).or_insert_with(|| {
                let state = Region::default();
                let wake = Arc::clone(&state.wake);
                engine.regions.insert(region, state);
                tokio::spawn(link::run(Arc::clone(&self.inner.shared), region, wake))
            });
        }
    }

    /// How the coordinator describes this node to others. The time is the caller's to set.
    #[must_use]
    pub fn message(&self) -> NodeMessage {
        self.inner.message.clone()
    }

    /// Whether the relay of the home region is connected; changes are seen by waiting on the receiver.
    #[must_use]
    pub fn home_relay(&self) -> watch::Receiver<bool> {
        self.inner.shared.home_is_up.subscribe()
    }

    /// Programs a peer, or its new values. Another key ends its connections.
    pub fn set_peer(&self, config: PeerConfig) {
        let id = config.id;
        self.inner.shared.lock().set_peer(config);
        self.update_links();
        // What waited for its old relay goes to the new one.
        self.inner.shared.lock().flush_peer(id, Instant::now());
        self.inner.shared.peers_changed.send_replace(());
    }

    /// Forgets a peer, and ends its connections.
    pub fn remove_peer(&self, id: Uuid) {
        self.inner.shared.lock().remove_peer(id);
        self.update_links();
    }

    /// Peers now.
    #[must_use]
    pub fn peers(&self) -> usize {
        self.inner.shared.lock().peer_count()
    }

    /// What a peer does.
    #[must_use]
    pub fn activity(&self, peer: Uuid) -> Activity {
        self.inner.shared.lock().activity(peer)
    }

    /// Bytes received from and sent to a peer, inside the tunnel; none when it is unknown.
    #[must_use]
    pub fn traffic(&self, peer: Uuid) -> Option<(u64, u64)> {
        self.inner.shared.lock().traffic(peer)
    }

    /// The traffic of every peer that has had any lately.
    #[must_use]
    pub fn all_traffic(&self) -> Vec<PeerTraffic> {
        self.inner.shared.lock().all_traffic()
    }

    /// Agrees on new keys with a peer now, instead of after two minutes.
    pub fn rekey(&self, peer: Uuid) {
        self.inner.shared.lock().rekey(peer, Instant::now());
    }

    /// Takes connections to a port.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    pub fn listen(&self, port: u16) -> Result<Listener, Error> {
        let (sender, receiver) = mpsc::channel(tcp::BACKLOG);
        let mut engine = self.inner.shared.lock();
        if engine.listeners.contains_key(&port) {
            return Err(Error::PortInUse(port));
        }
        engine.listeners.insert(port, sender);
        drop(engine);
        Ok(Listener { shared: Arc::clone(&self.inner.shared), port: Some(port), receiver })
    }

    /// Takes connections to all ports that have no listener.
    ///
    /// # Errors
    /// [`Error::PortInUse`] when somebody does already.
    pub fn listen_any(&self) -> Result<Listener, Error> {
        let (sender, receiver) = mpsc::channel(tcp::BACKLOG);
        let mut engine = self.inner.shared.lock();
        if engine.any_listener.is_some() {
            return Err(Error::PortInUse(0));
        }
        engine.any_listener = Some(sender);
        drop(engine);
        Ok(Listener { shared: Arc::clone(&self.inner.shared), port: None, receiver })
    }

    /// Connects to a port of a peer. Time limits are the caller's: an unreachable peer does not answer.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn connect(&self, to: SocketAddrV6) -> Result<TcpStream, Error> {
        self.connect_with(to, None).await
    }

    /// The same, with `buffer` bytes in each direction in the place of [`Config::tcp_buffer`].
    ///
    /// # Errors
    /// [`Error`].
    pub async fn connect_with(&self, to: SocketAddrV6, buffer: Option<usize>) -> Result<TcpStream, Error> {
        let shared = &self.inner.shared;
        let connection = {
            let mut engine = shared.lock();
            let peer = engine.peer_at(*to.ip()).ok_or(Error::NoPeer(*to.ip()))?;
            engine.connect(peer, to, buffer, Instant::now()).ok_or(Error::TooManyConnections)?
        };
        let stream = TcpStream::new(Arc::clone(shared), connection);
        stream.connected().await.map_err(Error::Connect)?;
        Ok(stream)
    }

    /// Takes the datagrams of a port.
    ///
    /// # Errors
    /// [`Error::PortInUse`].
    pub fn bind_udp(&self, port: u16) -> Result<UdpSocket, Error> {
        let (sender, receiver) = mpsc::channel(udp::QUEUE);
        let mut engine = self.inner.shared.lock();
        if engine.udp.contains_key(&port) {
            return Err(Error::PortInUse(port));
        }
        engine.udp.insert(port, sender);
        drop(engine);
        Ok(UdpSocket { shared: Arc::clone(&self.inner.shared), port: Some(port), receiver })
    }

    /// Takes the datagrams of all ports that have no socket.
    ///
    /// # Errors
    /// [`Error::PortInUse`] when somebody does already.
    pub fn bind_udp_any(&self) -> Result<UdpSocket, Error> {
        let (sender, receiver) = mpsc::channel(udp::QUEUE);
        let mut engine = self.inner.shared.lock();
        if engine.any_udp.is_some() {
            return Err(Error::PortInUse(0));
        }
        engine.any_udp = Some(sender);
        drop(engine);
        Ok(UdpSocket { shared: Arc::clone(&self.inner.shared), port: None, receiver })
    }

    /// The own address that packets to a peer's address come from.
    #[must_use]
    pub fn source_for(&self, to: Ipv6Addr) -> Option<Ipv6Addr> {
        self.inner.shared.lock().source_for(to)
    }

    /// Pings a peer once.
    ///
    /// # Errors
    /// [`Error::NoPeer`] and [`Error::Timeout`].
    pub async fn ping(&self, to: Ipv6Addr, kind: PingKind, timeout: Duration) -> Result<Pong, Error> {
        let shared = &self.inner.shared;
        let (sender, receiver) = oneshot::channel();
        let sent = Instant::now();
        let pending = {
            let mut engine = shared.lock();
            let peer = engine.peer_at(to).ok_or(Error::NoPeer(to))?;
            match kind {
                PingKind::Tsmp => {
                    let data: [u8; tsmp::DATA] = random();
                    let source = engine.source_for(to).ok_or(Error::NoPeer(to))?;
                    engine.tsmp_pings.insert(data, sender);
                    let payload = tsmp::Message::Ping(data).encode();
                    let packet =
                        ip::Packet { source, destination: to, protocol: tsmp::PROTOCOL, payload: &payload };
                    engine.send_ip(peer, packet, sent);
                    PendingPing { shared, tsmp: Some(data), disco: None }
                }
                PingKind::Disco => {
                    let transaction = random();
                    engine.disco_pings.insert(transaction, sender);
                    engine.send_disco_ping(peer, transaction);
                    PendingPing { shared, tsmp: None, disco: Some(transaction) }
                }
            }
        };
        let answered = tokio::time::timeout(timeout, receiver).await;
        drop(pending);
        match answered {
            Ok(Ok(at)) => Ok(Pong { latency: at.saturating_duration_since(sent) }),
            _ => Err(Error::Timeout(timeout)),
        }
    }

    /// As [`Self::connect`], of a peer that the coordinator may not have named yet, or by an older key. It never ends while
    /// nobody answers.
    ///
    /// # Errors
    /// [`Error`], but not [`Error::NoPeer`].
    pub async fn reach(&self, to: SocketAddrV6) -> Result<TcpStream, Error> {
        // Subscribed before the first look, so that no change is missed.
        let mut peers = self.inner.shared.peers_changed.subscribe();
        loop {
            match self.connect(to).await {
                // The sender lives as long as the node.
                Err(Error::NoPeer(_)) => drop(peers.changed().await),
                // The key was replaced.
                Err(Error::Connect(error)) if error.kind() == io::ErrorKind::ConnectionReset => {}
                ended => return ended,
            }
        }
    }

    /// Waits until a peer's tunnel works: pings it until it answers.
    ///
    /// # Errors
    /// [`Error::Timeout`] when it does not within `timeout`, and [`Error::NoPeer`] when no peer has the address then.
    pub async fn wait_reachable(&self, address: Ipv6Addr, timeout: Duration) -> Result<Pong, Error> {
        let until = Instant::now() + timeout;
        let mut wait = Duration::from_millis(100);
        // Subscribed before the first look, so that no change is missed.
        let mut peers = self.inner.shared.peers_changed.subscribe();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.ping(address, PingKind::Tsmp, wait.min(left)).await {
                Ok(pong) => return Ok(pong),
                Err(Error::NoPeer(address)) => {
                    // The coordinator may name it any moment. The sender lives as long as the node.
                    if tokio::time::timeout_at(until, peers.changed()).await.is_err() {
                        return Err(Error::NoPeer(address));
                    }
                    continue;
                }
                Err(_) if Instant::now() >= until => return Err(Error::Timeout(timeout)),
                Err(_) => {}
            }
            wait = (wait * 3 / 2).min(Duration::from_secs(2));
        }
    }
}

/// A ping whose answer is awaited.
struct PendingPing<'a> {
    shared: &'a Shared,
    tsmp: Option<[u8; tsmp::DATA]>,
    disco: Option<[u8; disco::TRANSACTION]>,
}

impl Drop for PendingPing<'_> {
    fn drop(&mut self) {
        let mut engine = self.shared.lock();
        if let Some(data) = self.tsmp {
            engine.tsmp_pings.remove(&data);
        }
        if let Some(transaction) = self.disco {
            engine.disco_pings.remove(&transaction);
        }
    }
}
