//! The relay: takes packets from connected clients and hands them to the client that has the destination's key.
//!
//! It cannot read what it carries. Nobody is authorized here: whoever proves a key may send, and what one client can make the
//! relay keep is bounded. A connection is one future ([`Relay::serve`]); while it is idle it owns no buffer, and its only work is
//! one frame a minute.
//!
//! Packets for one receiver wait in a queue of its own ([`super::queue`]); disco packets have a queue beside it, so that
//! latency is measured under load. `clients` is the table of receivers, `connection` what one connection does, `links` the
//! relays of other servers.

mod clients;
mod connection;
pub mod links;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use coder_wire::bytes::ByteStream;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::clients::{Client, Registered};
use self::links::Links;
use super::{frame, handshake};
use crate::key::{NodePrivate, NodePublic};

/// Bounds of a relay.
#[derive(Debug, Clone)]
pub struct Config {
    /// For each step of the handshake.
    pub handshake_timeout: Duration,
    /// How often a connection gets a frame; the same time again is added at random, up to a twelfth.
    pub keep_alive: Duration,
    /// How long a client that answers pings may be silent.
    pub silence_limit: Duration,
    /// How long a client may take nothing of what is written to it.
    pub write_timeout: Duration,
    /// Packets that wait for one client.
    pub queue_packets: usize,
    /// Bytes that wait for one client.
    pub queue_bytes: usize,
    /// Bytes that are shared equally by the clients for which packets wait. A share that has shrunk is enforced with the next
    /// packet of its client, so that with thousands of clients eight times as much may wait.
    pub shared_queue_bytes: usize,
    /// Connections in all. Further ones are refused.
    pub connections: usize,
    /// Connections with one key. Further ones end the oldest.
    pub connections_per_key: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            handshake_timeout: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            silence_limit: Duration::from_secs(150),
            write_timeout: Duration::from_secs(10),
            // More than the window of one of our TCP streams, so that one alone loses nothing.
            queue_packets: 1024,
            queue_bytes: 4 << 20,
            shared_queue_bytes: 32 << 20,
            connections: 50_000,
            connections_per_key: 8,
        }
    }
}

/// Why a connection ended, unless the client closed it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The byte stream failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// The client broke the protocol.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// The client did not prove its key.
    #[error(transparent)]
    Handshake(#[from] handshake::Error),
    /// Another frame than the handshake or the direction allows.
    #[error("the client sent a frame that only a relay sends, or sent it at the wrong time")]
    Unexpected,
    /// A step of the handshake took too long.
    #[error("the client did not finish the handshake in time")]
    HandshakeTimeout,
    /// No answer to pings.
    #[error("the client was silent for too long")]
    Silent,
    /// The client reads nothing.
    #[error("the client does not read what is written to it")]
    Stalled,
    /// The relay is full.
    #[error("the relay has as many connections as it may have")]
    Full,
    /// Too many connections with the client's key.
    #[error("the client connected again with the same key")]
    Replaced,
    /// [`Relay::restart`] was called.
    #[error("the relay restarts")]
    Restarting,
}

/// Numbers since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections now, those in the handshake included.
    pub connections: usize,
    /// Clients with a key now.
    pub clients: usize,
    /// Packets handed over.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets dropped because a queue was full.
    pub dropped: u64,
    /// Packets for an unknown destination.
    pub unknown: u64,
    /// Nodes at the relays of other servers now.
    pub remote_clients: usize,
    /// Packets handed to the relays of other servers.
    pub remote_packets: u64,
}

/// A relay. Clones are the same relay.
#[derive(Debug, Clone)]
pub struct Relay {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    private: NodePrivate,
    config: Config,
    /// The last of a key's connections is the one that receives.
    clients: RwLock<HashMap<NodePublic, Vec<Arc<Client>>>>,
    connections: AtomicUsize,
    /// Clients for which packets wait.
    backlogged: AtomicUsize,
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    unknown: AtomicU64,
    remote_packets: AtomicU64,
    links: Links,
    restart: CancellationToken,
    /// When to connect again and how long to try, for the notification of a restart.
    restart_times: Mutex<(Duration, Duration)>,
}

impl Relay {
    /// A relay with this identity.
    #[must_use]
    pub fn new(private: NodePrivate, config: Config) -> Self {
        let inner = Inner {
            private,
            config,
            clients: RwLock::default(),
            connections: AtomicUsize::new(0),
            backlogged: AtomicUsize::new(0),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
            remote_packets: AtomicU64::new(0),
            links: Links::default(),
            restart: CancellationToken::new(),
            restart_times: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Its key, for the header `Derp-Public-Key`.
    #[must_use]
    pub fn public_key(&self) -> NodePublic {
        self.inner.private.public()
    }

    /// Numbers for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            connections: self.inner.connections.load(Ordering::Relaxed),
            clients: self.inner.clients.read().len(),
            packets: get(&self.inner.packets),
            bytes: get(&self.inner.bytes),
            dropped: get(&self.inner.dropped),
            unknown: get(&self.inner.unknown),
            remote_clients: self.inner.links.keys(),
            remote_packets: get(&self.inner.remote_packets),
        }
    }

    /// Whether a client with this key is connected.
    #[must_use]
    pub fn is_connected(&self, key: &NodePublic) -> bool {
        self.inner.clients.read().contains_key(key)
    }

    /// Notifies every client that the relay restarts, and ends all connections.
    pub fn restart(&self, reconnect_in: Duration, try_for: Duration) {
        *self.inner.restart_times.lock() = (reconnect_in, try_for);
        self.inner.restart.cancel();
    }

    /// Serves one connection until it ends. Dropping the future ends it, too.
    ///
    /// # Errors
    /// Why it ended; nothing is wrong when the client closed it.
    pub async fn serve(&self, mut io: impl ByteStream) -> Result<(), Error> {
        let inner = &*self.inner;
        let _counted = Counted::new(inner)?;
        let handshake = async {
            tokio::select! {
                result = inner.handshake(&mut io) => result,
                () = inner.restart.cancelled() => Err(Error::Restarting),
            }
        };
        // Boxed, so that an idle connection does not keep the space that the handshake needed.
        let Some((key, info)) = Box::pin(handshake).await? else { return Ok(()) };
        let registered = Registered::new(inner, key);
        let (reader, writer) = tokio::io::split(io);
        let last_heard = Mutex::new(Instant::now());
        tokio::select! {
            result = inner.read(reader, &registered, &last_heard) => result,
            result = inner.write(writer, &registered.client, info, &last_heard) => result,
            () = registered.client.replaced.cancelled() => Err(Error::Replaced),
        }
    }
}

/// A connection that is counted.
struct Counted<'a>(&'a Inner);

impl<'a> Counted<'a> {
    fn new(inner: &'a Inner) -> Result<Self, Error> {
        let counted = Self(inner);
        if inner.connections.fetch_add(1, Ordering::Relaxed) >= inner.config.connections {
            return Err(Error::Full);
        }
        Ok(counted)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}
