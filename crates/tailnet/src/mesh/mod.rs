//! Connects relay and coordinator of a server with those of the other servers on the same database, so that peers of
//! different servers reach each other.
//!
//! Each server dials every other one and tells it what it has: the keys and packets of its relay, the peers and tunnels of its
//! coordinator. So there are two connections between two servers, one for each direction, and nothing goes on to a third server.
//! `frame` is what is announced, `record` how it is protected, `handshake` the beginning of a connection.
//!
//! The servers of a deployment share a secret. Whoever has it is trusted: rights are checked where a user connects.

pub mod frame;
mod handshake;
mod record;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coder_domain::secret::Secret;
use coder_wire::bytes::ByteStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use uuid::Uuid;

use self::frame::Frame;
use self::record::Key;
use crate::coordinator;
use crate::coordinator::hub::{Hearing, Hub, Telling};
use crate::derp::relay::Relay;
use crate::derp::relay::links::{self, Receiving, Sending};

/// Longest node of a peer in bytes. The coordinator's requests are not longer.
const NODE: usize = 64 << 10;
/// Bytes of the coordinator's frames in one record, unless the last of them is longer.
const TOLD: usize = 64 << 10;
/// Longest content of a record: what the coordinator tells, keys and packets, each with one long frame at its end.
const RECORD: usize = 512 << 10;
/// For each step of the handshake, and to write one record.
const STEP: Duration = Duration::from_secs(10);
/// How often a server is asked whether it is there.
const PING: Duration = Duration::from_secs(5);
/// A server that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(15);
/// How long the peers of a server are kept after its connection ended: it may come back.
const KEEP: Duration = Duration::from_secs(30);
/// Other servers that may connect.
const SERVERS: usize = 64;

/// Why a connection between servers ended, unless the other one closed it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The byte stream failed.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// The other side does not have the secret, or the connection was tampered with.
    #[error("the other side does not have the secret of this deployment")]
    Secret,
    /// It speaks another protocol.
    #[error("the other side speaks version {0} of the protocol between servers; version {version} is needed", version = handshake::VERSION)]
    Version(u8),
    /// The address leads elsewhere.
    #[error(
        "the relay URL leads to server {0}, not to the one that registered it: each server needs a URL of its own"
    )]
    OtherServer(Uuid),
    /// A server connected to itself.
    #[error("a server connected to itself: its relay URL must lead to it alone")]
    Itself,
    /// It closed the connection in the middle of the handshake.
    #[error("the other side closed the connection before it began")]
    Closed,
    /// A frame.
    #[error(transparent)]
    Frame(#[from] frame::Malformed),
    /// A record over the limit.
    #[error("a record of another server is too long")]
    TooLong,
    /// The other server has too much.
    #[error(transparent)]
    Coordinator(#[from] coordinator::TooMany),
    /// The other server is too slow.
    #[error(transparent)]
    Relay(#[from] links::TooMany),
    /// A step of the handshake, or a write, took too long.
    #[error("the other server takes too long")]
    Stalled,
    /// It does not answer.
    #[error("the other server is silent")]
    Silent,
    /// The same server connected again.
    #[error("the other server connected again")]
    Replaced,
    /// Too many servers.
    #[error("{SERVERS} other servers are connected already")]
    TooManyServers,
}

/// Connections now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// To other servers.
    pub dialled: usize,
    /// Of other servers.
    pub accepted: usize,
}

/// The connections to the other servers. Clones are the same.
#[derive(Debug, Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    own: Uuid,
    secret: Secret,
    relay: Relay,
    hub: Hub,
    dialled: AtomicUsize,
    accepted: AtomicUsize,
}

/// One connection in a count.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> (Self, usize) {
        (Self(count), count.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Mesh {
    /// The mesh of the server process `own`, whose deployment shares `secret`.
    #[must_use]
    pub fn new(own: Uuid, secret: Secret, relay: Relay, hub: Hub) -> Self {
        let (dialled, accepted) = Default::default();
        Self { inner: Arc::new(Inner { own, secret, relay, hub, dialled, accepted }) }
    }

    /// The id of this server process.
    #[must_use]
    pub fn own(&self) -> Uuid {
        self.inner.own
    }

    /// Connections now.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let get = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        Counts { dialled: get(&self.inner.dialled), accepted: get(&self.inner.accepted) }
    }

    /// Tells the server `other`, over a byte stream whose HTTP is done, until the connection ends.
    ///
    /// # Errors
    /// Why it ended; nothing is wrong when the other server closed it.
    pub async fn dial(&self, mut io: impl ByteStream, other: Uuid) -> Result<(), Error> {
        let inner = &*self.inner;
        let secret = inner.secret.expose().as_bytes();
        let (mut out, mut back) = handshake::dial(&mut io, inner.own, other, secret).await?;
        let _counted = Counted::new(&inner.dialled);
        tracing::info!(server_id = %other, "connected to another server");
        let wake = Arc::new(Notify::new());
        // Packets follow the presence of their senders: the relay's keys are gathered before its packets.
        let sending = inner.relay.link(other, Arc::clone(&wake));
        let telling = inner.hub.tell(other, Arc::clone(&wake));
        let (mut reader, mut writer) = tokio::io::split(io);
        let heard_at = Mutex::new(Instant::now());
        let answers = async {
            while back.read(&mut reader).await?.is_some() {
                *heard_at.lock() = Instant::now();
            }
            Ok::<_, Error>(())
        };
        tokio::select! {
            result = answers => result,
            result = write(&mut writer, &mut out, &sending, &telling, &wake, &heard_at) => result,
        }
    }

    /// Reads from another server that dialled, over a byte stream whose HTTP is done, until the connection ends. `connected` is
    /// called with its id when it has proven the secret. The future returns only after the peers of that server are
    /// forgotten; dropping it earlier leaves them.
    ///
    /// # Errors
    /// Why it ended; nothing is wrong when the other server closed it.
    pub async fn accept(&self, mut io: impl ByteStream, connected: impl FnOnce(Uuid)) -> Result<(), Error> {
        let inner = &*self.inner;
        let secret = inner.secret.expose().as_bytes();
        let (other, mut key, mut back) = handshake::accept(&mut io, inner.own, secret).await?;
        let (counted, others) = Counted::new(&inner.accepted);
        if others >= SERVERS {
            return Err(Error::TooManyServers);
        }
        connected(other);
        let hearing = inner.hub.hear(other);
        let receiving = inner.relay.receive_from(other);
        let result = hear(&mut io, &mut key, &mut back, &hearing, &receiving).await;
        drop((receiving, counted, io));
        let forget = hearing.end();
        sleep(KEEP).await;
        forget.forget();
        result
    }
}

async fn write(
    writer: &mut (impl AsyncWrite + Unpin),
    key: &mut Key,
    sending: &Sending,
    telling: &Telling,
    wake: &Notify,
    heard_at: &Mutex<Instant>,
) -> Result<(), Error> {
    let mut ping = Instant::now() + PING;
    let mut frames = Vec::new();
    loop {
        telling.gather(&mut frames, TOLD)?;
        sending.gather(&mut frames)?;
        if frames.is_empty() {
            // Idle: the buffer goes.
            frames = Vec::new();
            tokio::select! {
                () = wake.notified() => continue,
                () = sleep_until(ping) => {
                    if heard_at.lock().elapsed() > SILENCE {
                        return Err(Error::Silent);
                    }
                    ping = Instant::now() + PING;
                    Frame::Ping.encode(&mut frames);
                }
            }
        } else if ping <= Instant::now() {
            // A busy connection asks, too.
            if heard_at.lock().elapsed() > SILENCE {
                return Err(Error::Silent);
            }
            ping = Instant::now() + PING;
            Frame::Ping.encode(&mut frames);
        }
        send(writer, key, &frames).await?;
        frames.clear();
    }
}

async fn hear(
    io: &mut (impl AsyncRead + AsyncWrite + Unpin),
    key: &mut Key,
    back: &mut Key,
    hearing: &Hearing,
    receiving: &Receiving,
) -> Result<(), Error> {
    loop {
        let record = timeout(SILENCE, key.read(io)).await.map_err(|_| Error::Silent)??;
        let Some(record) = record else { return Ok(()) };
        let mut is_asked = false;
        Frame::read_all::<Error>(&record, |frame| {
            match frame {
                Frame::Ping => is_asked = true,
                Frame::Key(_) | Frame::KeyLeft(_) | Frame::Packet { .. } | Frame::SenderGone { .. } => {
                    receiving.receive(&frame);
                }
                _ => {
                    if !hearing.receive(&frame)? {
                        return Err(Error::Replaced);
                    }
                }
            }
            Ok(())
        })?;
        if is_asked {
            let mut answer = Vec::new();
            Frame::Pong.encode(&mut answer);
            send(io, back, &answer).await?;
        }
    }
}

/// Writes one record.
async fn send(writer: &mut (impl AsyncWrite + Unpin), key: &mut Key, frames: &[u8]) -> Result<(), Error> {
    let record = key.seal(frames);
    let written = async {
        writer.write_all(&record).await?;
        writer.flush().await
    };
    timeout(STEP, written).await.map_err(|_| Error::Stalled)?.map_err(Error::from)
}
