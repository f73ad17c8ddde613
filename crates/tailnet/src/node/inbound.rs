//! What a node does with a datagram of a peer: decrypt it, check its source, and hand on what is in it.

use std::net::SocketAddrV6;

use bytes::Bytes;
use tokio::time::Instant;

use super::engine::{ConnectionRef, Engine, PeerSerial};
use super::ip::{self, Packet};
use super::stack::{Egress, Flow};
use super::udp::Datagram;
use crate::key::NodePublic;
use crate::{disco, tsmp};

/// Longest datagram that is decrypted, in bytes.
const DATAGRAM: usize = 2048;

impl Engine {
    /// Takes a datagram that a peer sent through a relay.
    pub(super) fn receive(&mut self, region: i32, from: NodePublic, datagram: &[u8], now: Instant) {
        let Some(serial) = self.by_key.get(&from).copied() else {
            tracing::trace!(peer = %from, "a datagram of an unknown peer was dropped");
            return;
        };
        if datagram.starts_with(&disco::MAGIC) {
            self.receive_disco(serial, region, datagram, now);
            return;
        }
        if datagram.len() > DATAGRAM {
            return;
        }
        let Some((peer, out)) = self.with_tunnel(serial, now) else { return };
        let Some(tunnel) = &mut peer.tunnel else { return };
        let source = peer.config.addresses.first().copied();
        let mut space = [0; DATAGRAM];
        let inner = tunnel.receive(datagram, source, &mut space, out, now);
        if let Some(packet) = inner.and_then(Packet::parse) {
            if peer.config.addresses.contains(&packet.source) {
                let length = ip::HEADER + packet.payload.len();
                let copy = &space[..length];
                self.receive_ip(serial, copy, now);
            } else {
                tracing::debug!(peer = %from, source = %packet.source, "a packet with a foreign source was dropped");
            }
        }
        if !self.touched.contains(&serial) {
            self.touched.push(serial);
        }
    }

    /// Takes an IP packet whose source is the peer's.
    fn receive_ip(&mut self, serial: PeerSerial, bytes: &[u8], now: Instant) {
        let Some(packet) = Packet::parse(bytes) else { return };
        if !self.addresses.contains(&packet.destination) {
            return;
        }
        match packet.protocol {
            tsmp::PROTOCOL => self.receive_tsmp(serial, packet, now),
            ip::UDP => match packet.udp() {
                Some((source, destination, text)) => {
                    let receiver = self.udp.get(&destination.port()).or(self.any_udp.as_ref());
                    let Some(receiver) = receiver.filter(|receiver| !receiver.is_closed()) else {
                        // The stack answers that nobody listens.
                        self.receive_stack(serial, bytes, now);
                        return;
                    };
                    let datagram = Datagram { source, destination, text: Bytes::copy_from_slice(text) };
                    // A receiver that is behind loses what it cannot keep, as with any UDP socket.
                    let _ = receiver.try_send(datagram);
                }
                None => tracing::trace!("a malformed UDP packet was dropped"),
            },
            ip::TCP => {
                let Some((source, destination, wants_connection)) = packet.tcp() else { return };
                let flow = Flow {
                    local: SocketAddrV6::new(packet.destination, destination, 0, 0),
                    remote: SocketAddrV6::new(packet.source, source, 0, 0),
                };
                if wants_connection && !self.accept(serial, flow, now) {
                    return;
                }
                self.receive_stack(serial, bytes, now);
            }
            _ => self.receive_stack(serial, bytes, now),
        }
    }

    /// Makes a socket for a packet that asks for a connection, if somebody listens. Whether the stack must see the packet: it
    /// refuses one without a socket.
    fn accept(&mut self, serial: PeerSerial, flow: Flow, now: Instant) -> bool {
        if flow.local.port() == 0 || flow.remote.port() == 0 {
            return false;
        }
        let sender = match self.listeners.get(&flow.local.port()) {
            Some(sender) => Some(sender.clone()),
            None => self.any_listener.clone(),
        };
        let Some(sender) = sender.filter(|sender| !sender.is_closed()) else { return true };
        if !self.ensure_stack(serial, now) {
            return false;
        }
        let Some(stack) = self.peers.get_mut(&serial).and_then(|peer| peer.stack.as_mut()) else {
            return false;
        };
        if stack.has_connection(flow) {
            return true;
        }
        // A full queue or too many connections: the other side asks again.
        let Ok(permit) = sender.try_reserve() else { return false };
        if !stack.has_room() {
            return false;
        }
        let handle = stack.accept(flow);
        permit.send(ConnectionRef { peer: serial, handle, flow });
        true
    }

    fn receive_stack(&mut self, serial: PeerSerial, bytes: &[u8], now: Instant) {
        if !self.ensure_stack(serial, now) {
            return;
        }
        let epoch = self.epoch;
        let Some((peer, out)) = self.with_tunnel(serial, now) else { return };
        let (Some(stack), Some(tunnel)) = (&mut peer.stack, &mut peer.tunnel) else { return };
        stack.receive(bytes, epoch, &mut Egress { tunnel, out, now });
    }

    fn receive_tsmp(&mut self, serial: PeerSerial, packet: Packet<'_>, now: Instant) {
        match tsmp::Message::decode(packet.payload) {
            Some(tsmp::Message::Ping(data)) => {
                let payload = tsmp::Message::Pong(data).encode();
                self.send_ip(
                    serial,
                    Packet {
                        source: packet.destination,
                        destination: packet.source,
                        protocol: tsmp::PROTOCOL,
                        payload: &payload,
                    },
                    now,
                );
            }
            Some(tsmp::Message::Pong(data)) => {
                if let Some(waiting) = self.tsmp_pings.remove(&data) {
                    let _ = waiting.send(now);
                }
            }
            None => {}
        }
    }

    fn receive_disco(&mut self, serial: PeerSerial, region: i32, datagram: &[u8], now: Instant) {
        let Some((sender, sealed)) = disco::split(datagram) else { return };
        let disco = &self.disco;
        let Some(peer) = self.peers.get_mut(&serial).filter(|peer| peer.config.disco == sender) else {
            return;
        };
        let key = peer.config.key;
        let shared = peer.disco.get_or_insert_with(|| Box::new(disco.shared(&sender)));
        let Some(text) = shared.open(sealed) else { return };
        match disco::Message::decode(&text) {
            Some(disco::Message::Ping { transaction, node }) if node.is_none_or(|node| node == key) => {
                let pong = disco::Message::Pong { transaction, source: disco::relay_source(region) };
                let packet = disco::packet(&self.disco_public, shared, &pong);
                // Back the way it came.
                if let Some(region) = self.regions.get_mut(&region) {
                    region.out.send(key, &packet);
                }
            }
            Some(disco::Message::Pong { transaction, .. }) => {
                if let Some(waiting) = self.disco_pings.remove(&transaction) {
                    let _ = waiting.send(now);
                }
            }
            _ => {}
        }
    }
}
