//! One peer's WireGuard state, and the frames to its relay.
//!
//! The state machine is boringtun's. Its clock is the machine's, also while it sleeps; nothing else here reads that clock.

use std::net::Ipv6Addr;
use std::time::Duration;

use boringtun::noise::errors::WireGuardError;
use boringtun::noise::{Tunn, TunnResult};
use tokio::time::Instant;

use crate::derp::frame::{self, kind};
use crate::key::{LENGTH, NodePrivate, NodePublic};

/// Bytes of frames that may wait for the relay. When they do, TCP waits, and everything else is dropped.
pub(super) const OUT: usize = 256 << 10;
/// How often timers run.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// How long after the last packet they run: keys live 180 s, an attempt for new ones 90 s.
const ACTIVE: Duration = Duration::from_secs(200);
/// What WireGuard adds to a packet, and its shortest buffer: a handshake.
const OVERHEAD: usize = 32;
const HANDSHAKE: usize = 148;

/// The frames that go to a relay.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) frames: Vec<u8>,
    /// Whether there is a connection to the relay.
    pub(super) is_up: bool,
}

impl Outbox {
    pub(super) fn has_room(&self) -> bool {
        self.is_up && self.frames.len() < OUT
    }

    /// A packet for `to`, written by `write` into a place of `size` bytes; none is sent when it returns none.
    fn put(&mut self, to: NodePublic, size: usize, write: impl FnOnce(&mut [u8]) -> Option<usize>) {
        if !self.has_room() {
            return;
        }
        let start = self.frames.len();
        let key = start + frame::HEADER;
        let packet = key + LENGTH;
        self.frames.resize(packet + size, 0);
        let Some(length) = write(&mut self.frames[packet..]) else {
            self.frames.truncate(start);
            return;
        };
        let header = frame::header(kind::SEND_PACKET, LENGTH + length);
        self.frames[start..key].copy_from_slice(&header);
        self.frames[key..packet].copy_from_slice(to.as_bytes());
        self.frames.truncate(packet + length);
    }

    /// A packet that needs no tunnel.
    pub(super) fn send(&mut self, to: NodePublic, packet: &[u8]) {
        self.put(to, packet.len(), |place| {
            place.copy_from_slice(packet);
            Some(packet.len())
        });
    }
}

/// The WireGuard state of one peer.
pub(super) struct Tunnel {
    tunn: Tunn,
    peer: NodePublic,
    /// When timers ran last.
    last_tick: Instant,
    /// When a packet came or went last.
    last_used: Instant,
    /// Whether packets wait in it for keys.
    has_queued_packets: bool,
    established: Option<Instant>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Tunnel {
    pub(super) fn new(private: &NodePrivate, peer: NodePublic, index: u32, now: Instant) -> Self {
        let public = boringtun::x25519::PublicKey::from(*peer.as_bytes());
        // The upper eight bits of an index are the session's.
        let tunn = Tunn::new(private.to_wireguard(), public, None, None, index & 0x00ff_ffff, None);
        Self {
            tunn,
            peer,
            last_tick: now,
            last_used: now,
            has_queued_packets: false,
            established: None,
            received: 0,
            sent: 0,
        }
    }

    /// When a handshake ended last.
    pub(super) fn established(&self) -> Option<Instant> {
        self.established
    }

    /// Sends an IP packet, or keeps it while a handshake is under way.
    pub(super) fn send(&mut self, packet: &[u8], out: &mut Outbox, now: Instant) {
        if !out.has_room() {
            return;
        }
        self.refresh(out, now);
        self.last_used = now;
        self.sent += packet.len() as u64;
        let mut sent = false;
        let size = (packet.len() + OVERHEAD).max(HANDSHAKE);
        out.put(self.peer, size, |place| match self.tunn.encapsulate(packet, place) {
            TunnResult::WriteToNetwork(datagram) => {
                sent = is_data(datagram);
                Some(datagram.len())
            }
            _ => None,
        });
        self.has_queued_packets |= !sent;
    }

    /// Takes a datagram of the peer. The IP packet in it, if there is one; `space` is at least as long as the datagram.
    pub(super) fn receive<'a>(
        &mut self,
        datagram: &[u8],
        source: Option<Ipv6Addr>,
        space: &'a mut [u8],
        out: &mut Outbox,
        now: Instant,
    ) -> Option<&'a [u8]> {
        self.refresh(out, now);
        self.last_used = now;
        let before = self.tunn.time_since_last_handshake();
        let mut inner = None;
        match self.tunn.decapsulate(source.map(Into::into), datagram, space) {
            TunnResult::WriteToNetwork(answer) => {
                out.send(self.peer, answer);
                self.has_queued_packets = true;
            }
            TunnResult::WriteToTunnelV6(packet, _) => {
                self.received += packet.len() as u64;
                inner = Some(packet.len());
            }
            TunnResult::Err(error) => {
                tracing::trace!(peer = %self.peer, ?error, "a datagram of a peer was not accepted");
                return None;
            }
            TunnResult::Done | TunnResult::WriteToTunnelV4(..) => {}
        }
        let after = self.tunn.time_since_last_handshake();
        if after.is_some() && (before.is_none() || after < before) {
            self.established = Some(now);
        }
        if self.has_queued_packets && after.is_some() {
            self.send_queued(out);
        }
        inner.map(|length| &space[..length])
    }

    /// Sends what waited for keys.
    fn send_queued(&mut self, out: &mut Outbox) {
        self.has_queued_packets = false;
        loop {
            let mut sent = false;
            out.put(self.peer, frame::BODY - LENGTH, |place| match self.tunn.decapsulate(None, &[], place) {
                TunnResult::WriteToNetwork(datagram) => {
                    sent = true;
                    Some(datagram.len())
                }
                _ => None,
            });
            if !sent {
                self.has_queued_packets = !out.has_room();
                return;
            }
        }
    }

    /// Begins a handshake, whether or not there are keys.
    pub(super) fn rekey(&mut self, out: &mut Outbox, now: Instant) {
        self.refresh(out, now);
        self.last_used = now;
        out.put(self.peer, HANDSHAKE, |place| match self.tunn.format_handshake_initiation(place, true) {
            TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
            _ => None,
        });
    }

    /// boringtun knows the time only from its timers.
    fn refresh(&mut self, out: &mut Outbox, now: Instant) {
        if now.saturating_duration_since(self.last_tick) >= TICK {
            self.tick(out, now);
        }
    }

    /// Runs the timers: handshakes again, new keys, keep-alives.
    pub(super) fn tick(&mut self, out: &mut Outbox, now: Instant) {
        self.last_tick = now;
        let mut result = None;
        out.put(self.peer, HANDSHAKE, |place| {
            // An attempt that is given up is expected, but the library logs it as an error.
            let silent = tracing::dispatcher::Dispatch::none();
            match tracing::dispatcher::with_default(&silent, || self.tunn.update_timers(place)) {
                TunnResult::WriteToNetwork(datagram) => Some(datagram.len()),
                TunnResult::Err(error) => {
                    result = Some(error);
                    None
                }
                _ => None,
            }
        });
        if matches!(result, Some(WireGuardError::ConnectionExpired)) {
            self.has_queued_packets = false;
        }
    }

    /// When timers must run next; none while nothing is under way.
    pub(super) fn next_tick(&self, now: Instant) -> Option<Instant> {
        let is_active = now.saturating_duration_since(self.last_used) < ACTIVE;
        is_active.then(|| self.last_tick + TICK)
    }
}

fn is_data(datagram: &[u8]) -> bool {
    datagram.first() == Some(&4)
}
