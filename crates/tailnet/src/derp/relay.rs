//! The relay: takes packets from connected clients and hands them to the client that has the destination's key.
//!
//! It cannot read what it carries. Nobody is authorized here: whoever proves a key may send, and what one client can make the
//! relay keep is bounded. A connection is one future ([`Relay::serve`]); while it is idle it owns no buffer, and its only work is
//! one frame a minute.
//!
//! Packets for one receiver wait in a queue of its own ([`super::queue`]); disco packets have a queue beside it, so that
//! latency is measured under load.

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::ready;
use std::time::Duration;

use bytes::Bytes;
use coder_wire::bytes::ByteStream;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::frame::{self, Decoder, Frame, GoneReason};
use super::handshake::{self, ClientInfo, ServerInfo};
use super::queue::FairQueue;
use crate::disco;
use crate::key::{NodePrivate, NodePublic};

/// Bytes that are read at once, on the stack.
const READ: usize = 32 << 10;
/// Bytes that are written at once, unless one frame is longer.
const WRITE: usize = 64 << 10;
/// Answers and notices that wait for one connection. Further ones are dropped.
const NOTICES: usize = 64;
/// Peers of one connection that are told when it ends.
const DESTINATIONS: usize = 1024;
/// Notices that a destination is unknown: so many at once, and so many a second.
const UNKNOWN_BURST: u32 = 3;

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
    /// Bytes that wait for all clients.
    pub total_queue_bytes: usize,
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
            total_queue_bytes: 256 << 20,
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
    queued: AtomicUsize,
    packets: AtomicU64,
    bytes: AtomicU64,
    dropped: AtomicU64,
    unknown: AtomicU64,
    restart: CancellationToken,
    /// When to connect again and how long to try, for the notice of a restart.
    restart_times: Mutex<(Duration, Duration)>,
}

/// A connection after its handshake, as the others see it.
#[derive(Debug)]
struct Client {
    key: NodePublic,
    /// Whether it is the connection of its key that receives.
    receives: AtomicBool,
    waiting: Mutex<Waiting>,
    wake: Notify,
    /// Ended because its key connected too often.
    replaced: CancellationToken,
}

#[derive(Debug)]
struct Waiting {
    packets: FairQueue,
    disco: FairQueue,
    notices: VecDeque<Notice>,
}

#[derive(Debug, PartialEq, Eq)]
enum Notice {
    Gone(NodePublic, GoneReason),
    Pong([u8; 8]),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            queued: AtomicUsize::new(0),
            packets: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
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
            clients: self.inner.clients.read().unwrap_or_else(PoisonError::into_inner).len(),
            packets: get(&self.inner.packets),
            bytes: get(&self.inner.bytes),
            dropped: get(&self.inner.dropped),
            unknown: get(&self.inner.unknown),
        }
    }

    /// Whether a client with this key is connected.
    #[must_use]
    pub fn is_connected(&self, key: &NodePublic) -> bool {
        self.inner.clients.read().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }

    /// Tells every client that the relay restarts, and ends all connections.
    pub fn restart(&self, reconnect_in: Duration, try_for: Duration) {
        *lock(&self.inner.restart_times) = (reconnect_in, try_for);
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

/// A client in the table. Dropping it takes it out and tells those it sent to.
struct Registered<'a> {
    inner: &'a Inner,
    client: Arc<Client>,
    destinations: Mutex<HashSet<NodePublic>>,
}

impl<'a> Registered<'a> {
    fn new(inner: &'a Inner, key: NodePublic) -> Self {
        let config = &inner.config;
        let queue = |divisor| FairQueue::new(config.queue_packets / divisor, config.queue_bytes / divisor);
        let client = Arc::new(Client {
            key,
            receives: AtomicBool::new(true),
            waiting: Mutex::new(Waiting { packets: queue(1), disco: queue(4), notices: VecDeque::new() }),
            wake: Notify::new(),
            replaced: CancellationToken::new(),
        });
        let mut clients = inner.clients.write().unwrap_or_else(PoisonError::into_inner);
        let same = clients.entry(key).or_default();
        for other in &*same {
            other.receives.store(false, Ordering::Relaxed);
        }
        same.push(Arc::clone(&client));
        if same.len() > config.connections_per_key {
            same.remove(0).replaced.cancel();
        }
        Self { inner, client, destinations: Mutex::default() }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let key = self.client.key;
        let mut clients = self.inner.clients.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = clients.get_mut(&key) {
            same.retain(|client| !Arc::ptr_eq(client, &self.client));
            if let Some(last) = same.last() {
                last.receives.store(true, Ordering::Relaxed);
            } else {
                clients.remove(&key);
            }
        }
        let mut waiting = lock(&self.client.waiting);
        let left = waiting.packets.bytes() + waiting.disco.bytes();
        self.inner.queued.fetch_sub(left, Ordering::Relaxed);
        // Nobody may add to it any more.
        waiting.packets = FairQueue::new(0, 0);
        waiting.disco = FairQueue::new(0, 0);
        drop(waiting);
        if clients.contains_key(&key) {
            return;
        }
        for destination in lock(&self.destinations).drain() {
            for client in clients.get(&destination).into_iter().flatten() {
                client.notice(Notice::Gone(key, GoneReason::Disconnected));
            }
        }
    }
}

impl Client {
    fn notice(&self, notice: Notice) {
        let mut waiting = lock(&self.waiting);
        if waiting.notices.len() < NOTICES && !waiting.notices.contains(&notice) {
            waiting.notices.push_back(notice);
            self.wake.notify_one();
        }
    }
}

impl Inner {
    /// The client's key and what it says of itself; none when it closed the connection.
    async fn handshake(
        &self,
        io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> Result<Option<(NodePublic, ClientInfo)>, Error> {
        let limit = self.config.handshake_timeout;
        let late = |_| Error::HandshakeTimeout;
        let mut out = Vec::new();
        Frame::ServerKey(self.private.public()).encode(&mut out);
        tokio::time::timeout(limit, write(io, &out)).await.map_err(late)??;
        let read = read_client_info(io);
        let Some((key, sealed)) = tokio::time::timeout(limit, read).await.map_err(late)?? else {
            return Ok(None);
        };
        let info = handshake::open_client(&self.private, &key, &sealed)?;
        out.clear();
        let server = handshake::seal(&self.private, &key, &ServerInfo { version: handshake::VERSION });
        Frame::ServerInfo(&server).encode(&mut out);
        tokio::time::timeout(limit, write(io, &out)).await.map_err(late)??;
        Ok(Some((key, info)))
    }

    async fn read(
        &self,
        mut reader: impl AsyncRead + Unpin,
        registered: &Registered<'_>,
        last_heard: &Mutex<Instant>,
    ) -> Result<(), Error> {
        let mut decoder = Decoder::default();
        let mut unknown = UnknownLimit::new();
        loop {
            let ended = read_some(&mut reader, |bytes| {
                *lock(last_heard) = Instant::now();
                decoder.decode(bytes, |frame| self.receive(frame, registered, &mut unknown))
            });
            if ended.await? {
                return Ok(());
            }
        }
    }

    fn receive(
        &self,
        frame: Frame<'_>,
        registered: &Registered<'_>,
        unknown: &mut UnknownLimit,
    ) -> Result<(), Error> {
        match frame {
            Frame::SendPacket { to, packet } => {
                self.forward(registered, to, packet, unknown);
                Ok(())
            }
            Frame::Ping(data) => {
                registered.client.notice(Notice::Pong(data));
                Ok(())
            }
            // The home region matters to nobody here; a pong has been noted as a sign of life.
            Frame::NotePreferred(_) | Frame::Pong(_) | Frame::KeepAlive | Frame::Unknown(_) => Ok(()),
            _ => Err(Error::Unexpected),
        }
    }

    fn forward(
        &self,
        registered: &Registered<'_>,
        to: NodePublic,
        packet: &[u8],
        unknown: &mut UnknownLimit,
    ) {
        let from = registered.client.key;
        if !registered.client.receives.load(Ordering::Relaxed) {
            self.make_receiver(&registered.client);
        }
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        let Some(destination) = clients.get(&to).and_then(|same| same.last()) else {
            drop(clients);
            self.unknown.fetch_add(1, Ordering::Relaxed);
            if unknown.allows() {
                registered.client.notice(Notice::Gone(to, GoneReason::NotHere));
            }
            return;
        };
        {
            let mut destinations = lock(&registered.destinations);
            if destinations.len() < DESTINATIONS {
                destinations.insert(to);
            }
        }
        if self.queued.load(Ordering::Relaxed) + packet.len() > self.config.total_queue_bytes {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(packet.len() as u64, Ordering::Relaxed);
        let mut waiting = lock(&destination.waiting);
        let queue = if packet.starts_with(&disco::MAGIC) { &mut waiting.disco } else { &mut waiting.packets };
        let before = queue.bytes();
        let dropped = queue.push(from, Bytes::copy_from_slice(packet));
        let after = queue.bytes();
        if after >= before {
            self.queued.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.queued.fetch_sub(before - after, Ordering::Relaxed);
        }
        drop(waiting);
        if dropped > 0 {
            self.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        }
        destination.wake.notify_one();
    }

    /// The connection that sent last receives.
    fn make_receiver(&self, client: &Arc<Client>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let Some(same) = clients.get_mut(&client.key) else { return };
        let Some(at) = same.iter().position(|other| Arc::ptr_eq(other, client)) else { return };
        for other in &*same {
            other.receives.store(false, Ordering::Relaxed);
        }
        let client = same.remove(at);
        client.receives.store(true, Ordering::Relaxed);
        same.push(client);
    }

    async fn write(
        &self,
        mut writer: impl AsyncWrite + Unpin,
        client: &Client,
        info: ClientInfo,
        last_heard: &Mutex<Instant>,
    ) -> Result<(), Error> {
        let mut out = Vec::new();
        let mut keep_alive = Instant::now() + self.keep_alive_after();
        loop {
            self.gather(client, &mut out);
            if out.is_empty() {
                // Idle: the buffer goes.
                out = Vec::new();
                tokio::select! {
                    () = client.wake.notified() => continue,
                    () = self.restart.cancelled() => {
                        let (reconnect_in, try_for) = *lock(&self.restart_times);
                        Frame::Restarting { reconnect_in, try_for }.encode(&mut out);
                        let written = tokio::time::timeout(self.config.write_timeout, write(&mut writer, &out));
                        written.await.map_err(|_| Error::Stalled)??;
                        return Err(Error::Restarting);
                    }
                    () = tokio::time::sleep_until(keep_alive) => {
                        if info.can_ack_pings && lock(last_heard).elapsed() > self.config.silence_limit {
                            return Err(Error::Silent);
                        }
                        keep_alive = Instant::now() + self.keep_alive_after();
                        Frame::KeepAlive.encode(&mut out);
                        if info.can_ack_pings {
                            Frame::Ping(random()).encode(&mut out);
                        }
                    }
                }
            }
            let written = tokio::time::timeout(self.config.write_timeout, write(&mut writer, &out));
            written.await.map_err(|_| Error::Stalled)??;
            out.clear();
        }
    }

    /// Moves what waits into `out`, as far as it is written at once.
    fn gather(&self, client: &Client, out: &mut Vec<u8>) {
        let mut taken = 0;
        let mut waiting = lock(&client.waiting);
        while let Some(notice) = waiting.notices.pop_front() {
            match notice {
                Notice::Gone(peer, reason) => Frame::PeerGone { peer, reason }.encode(out),
                Notice::Pong(data) => Frame::Pong(data).encode(out),
            }
        }
        while out.len() < WRITE {
            let Some((from, packet)) = waiting.disco.pop().or_else(|| waiting.packets.pop()) else { break };
            taken += packet.len();
            Frame::RecvPacket { from, packet: &packet }.encode(out);
        }
        drop(waiting);
        self.queued.fetch_sub(taken, Ordering::Relaxed);
    }

    /// Spread, so that the connections of a restart do not stay in step.
    fn keep_alive_after(&self) -> Duration {
        let [part, ..] = random();
        self.config.keep_alive + self.config.keep_alive / 12 * u32::from(part) / 255
    }
}

fn random() -> [u8; 8] {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// Limits notices about unknown destinations.
struct UnknownLimit {
    left: u32,
    refilled: Instant,
}

impl UnknownLimit {
    fn new() -> Self {
        Self { left: UNKNOWN_BURST, refilled: Instant::now() }
    }

    fn allows(&mut self) -> bool {
        if self.refilled.elapsed() >= Duration::from_secs(1) {
            *self = Self::new();
        }
        let allows = self.left > 0;
        self.left = self.left.saturating_sub(1);
        allows
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    writer.write_all(bytes).await?;
    writer.flush().await
}

/// Reads what is there, on the stack, and hands it on; whether the stream has ended.
pub(crate) async fn read_some<E: From<std::io::Error>>(
    reader: &mut (impl AsyncRead + Unpin),
    mut each: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<bool, E> {
    poll_fn(|cx| {
        let mut space = [MaybeUninit::uninit(); READ];
        let mut buffer = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))?;
        if buffer.filled().is_empty() {
            return std::task::Poll::Ready(Ok(true));
        }
        std::task::Poll::Ready(each(buffer.filled()).map(|()| false))
    })
    .await
}

/// The first frame of a client, and nothing behind it: further bytes stay in the stream.
async fn read_client_info(io: &mut (impl AsyncRead + Unpin)) -> Result<Option<(NodePublic, Vec<u8>)>, Error> {
    match super::client::read_frame::<Error>(io, handshake::LIMIT).await? {
        None => Ok(None),
        Some((kind, body)) => match Frame::parse(kind, &body)? {
            Frame::ClientInfo { key, sealed } => Ok(Some((key, sealed.to_vec()))),
            _ => Err(Error::Unexpected),
        },
    }
}
