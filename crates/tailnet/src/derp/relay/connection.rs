//! One connection of a client: the handshake, what it sends, and what it is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;

use super::clients::{Client, Notification, Registered};
use super::{Error, Inner};
use crate::derp::client::read_frame;
use crate::derp::frame::{Decoder, Frame, GoneReason};
use crate::derp::handshake::{self, ClientInfo, ServerInfo};
use crate::derp::read::read_some;
use crate::disco;
use crate::key::{NodePublic, random};

/// Bytes that are written at once, unless one frame is longer.
pub(super) const WRITE: usize = 64 << 10;
/// Peers that are notified when one connection ends.
const DESTINATIONS: usize = 1024;
/// Notifications that a destination is unknown: so many at once, and so many a second.
const UNKNOWN_BURST: u32 = 3;

impl Inner {
    /// The client's key and its description of itself; none when it closed the connection.
    pub(super) async fn handshake(
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

    pub(super) async fn read(
        &self,
        mut reader: impl AsyncRead + Unpin,
        registered: &Registered<'_>,
        last_heard: &Mutex<Instant>,
    ) -> Result<(), Error> {
        let mut decoder = Decoder::default();
        let mut unknown = UnknownLimit::new();
        loop {
            let ended = read_some(&mut reader, |bytes| {
                *last_heard.lock() = Instant::now();
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
                registered.client.notify(Notification::Pong(data));
                Ok(())
            }
            // The relay does not use the home region; a pong counts as activity.
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
        let clients = self.clients.read();
        let here = clients.get(&to).and_then(|same| same.last());
        // A node that is connected here and at another server receives where it was active last.
        let elsewhere = match here {
            Some(client) if client.receives.load(Ordering::Relaxed) => None,
            _ => self.links.towards(&to),
        };
        if here.is_none() && elsewhere.is_none() {
            drop(clients);
            self.unknown.fetch_add(1, Ordering::Relaxed);
            if unknown.allows() {
                registered.client.notify(Notification::Gone(to, GoneReason::NotHere));
            }
            return;
        }
        {
            let mut destinations = registered.destinations.lock();
            if destinations.len() < DESTINATIONS {
                destinations.insert(to);
            }
        }
        match (elsewhere, here) {
            (Some(link), _) => {
                self.remote_packets.fetch_add(1, Ordering::Relaxed);
                link.push(self, to, from, packet);
            }
            (None, Some(client)) => self.queue(client, from, packet),
            (None, None) => {}
        }
    }

    /// Hands a packet of another relay to a node here. It never goes on to a third relay.
    pub(super) fn deliver(&self, to: NodePublic, from: NodePublic, packet: &[u8]) {
        let clients = self.clients.read();
        let Some(client) = clients.get(&to).and_then(|same| same.last()) else {
            self.unknown.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.queue(client, from, packet);
    }

    /// Lets a packet wait for a node here.
    fn queue(&self, destination: &Client, from: NodePublic, packet: &[u8]) {
        let mut waiting = destination.waiting.lock();
        let was_empty = waiting.is_empty();
        // Receivers that do not read leave as much for each that does.
        let share = self.config.shared_queue_bytes / (self.backlogged.load(Ordering::Relaxed) + 1);
        let queue = if packet.starts_with(&disco::MAGIC) { &mut waiting.disco } else { &mut waiting.packets };
        let dropped = queue.push(from, Bytes::copy_from_slice(packet), share);
        self.note_backlog(was_empty, waiting.is_empty());
        drop(waiting);
        self.count(packet, dropped);
        destination.wake.notify_one();
    }

    /// Counts a packet that was added to a queue, and those that were dropped for it.
    pub(super) fn count(&self, packet: &[u8], dropped: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(packet.len() as u64, Ordering::Relaxed);
        if dropped > 0 {
            self.dropped.fetch_add(dropped as u64, Ordering::Relaxed);
        }
    }

    /// The connection that sent last receives.
    fn make_receiver(&self, client: &Arc<Client>) {
        let key = client.key;
        let mut clients = self.clients.write();
        let Some(same) = clients.get_mut(&key) else { return };
        let Some(at) = same.iter().position(|other| Arc::ptr_eq(other, client)) else { return };
        for other in &*same {
            other.receives.store(false, Ordering::Relaxed);
        }
        let client = same.remove(at);
        client.receives.store(true, Ordering::Relaxed);
        same.push(client);
        self.links.changed(key);
    }

    pub(super) async fn write(
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
                        let (reconnect_in, try_for) = *self.restart_times.lock();
                        Frame::Restarting { reconnect_in, try_for }.encode(&mut out);
                        let written = tokio::time::timeout(self.config.write_timeout, write(&mut writer, &out));
                        written.await.map_err(|_| Error::Stalled)??;
                        return Err(Error::Restarting);
                    }
                    () = tokio::time::sleep_until(keep_alive) => {
                        if info.can_ack_pings && last_heard.lock().elapsed() > self.config.silence_limit {
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
        let mut waiting = client.waiting.lock();
        let was_empty = waiting.is_empty();
        while let Some(notification) = waiting.notifications.pop_front() {
            match notification {
                Notification::Gone(peer, reason) => Frame::PeerGone { peer, reason }.encode(out),
                Notification::Pong(data) => Frame::Pong(data).encode(out),
            }
        }
        while out.len() < WRITE {
            let Some((from, packet)) = waiting.disco.pop().or_else(|| waiting.packets.pop()) else { break };
            Frame::RecvPacket { from, packet: &packet }.encode(out);
        }
        self.note_backlog(was_empty, waiting.is_empty());
    }

    /// Counts a client whose queues were empty and are not any more, or the other way round.
    pub(super) fn note_backlog(&self, was_empty: bool, is_empty: bool) {
        match (was_empty, is_empty) {
            (true, false) => drop(self.backlogged.fetch_add(1, Ordering::Relaxed)),
            (false, true) => drop(self.backlogged.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }

    /// Spread, so that the connections of a restart do not stay in step.
    fn keep_alive_after(&self) -> Duration {
        let [part] = random();
        self.config.keep_alive + self.config.keep_alive / 12 * u32::from(part) / 255
    }
}

/// Limits notifications about unknown destinations.
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

/// The first frame of a client, and nothing behind it: further bytes stay in the stream.
async fn read_client_info(io: &mut (impl AsyncRead + Unpin)) -> Result<Option<(NodePublic, Vec<u8>)>, Error> {
    match read_frame::<Error>(io, handshake::LIMIT).await? {
        None => Ok(None),
        Some((kind, body)) => match Frame::parse(kind, &body)? {
            Frame::ClientInfo { key, sealed } => Ok(Some((key, sealed.to_vec()))),
            _ => Err(Error::Unexpected),
        },
    }
}
