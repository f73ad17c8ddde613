//! Sequence numbers of acknowledgements.
//!
//! smoltcp goes back to the first unacknowledged byte when it sends again, and its bare acknowledgements then carry that
//! number instead of the highest that was sent (RFC 9293, 3.10.7.4: SND.NXT). The other side has that byte already and drops such a
//! packet, with the acknowledgement in it. When both sides send again, neither ever accepts a packet of the other. So acknowledgements are
//! given the right number on their way out.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use smoltcp::wire::{IpAddress, TcpPacket};

use super::ip::{HEADER, Packet, TCP};
use super::stack::Flow;

/// The sequence number behind the last byte that each connection sent.
#[derive(Debug, Default)]
pub(super) struct SentSequences(HashMap<Flow, u32>);

impl SentSequences {
    /// Notes what a packet sends, and mends it if it is a bare acknowledgement.
    pub(super) fn correct(&mut self, bytes: &mut [u8]) {
        let Some((flow, source, destination)) = flow(bytes) else { return };
        let Ok(mut packet) = TcpPacket::new_checked(&mut bytes[HEADER..]) else { return };
        let number = |packet: &TcpPacket<&mut [u8]>| packet.seq_number().0.cast_unsigned();
        let length = packet.segment_len();
        if packet.rst() {
            return;
        }
        if length > 0 {
            let end = number(&packet).wrapping_add(u32::try_from(length).unwrap_or_default());
            let highest = self.0.entry(flow).or_insert(end);
            if is_after(end, *highest) {
                *highest = end;
            }
            return;
        }
        if let Some(highest) = self.0.get(&flow)
            && is_after(*highest, number(&packet))
        {
            packet.set_seq_number(smoltcp::wire::TcpSeqNumber(highest.cast_signed()));
            packet.fill_checksum(&IpAddress::Ipv6(source), &IpAddress::Ipv6(destination));
        }
    }

    /// A connection has ended.
    pub(super) fn forget(&mut self, flow: Flow) {
        self.0.remove(&flow);
    }
}

/// Sequence numbers wrap.
fn is_after(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// The connection of an outgoing TCP packet, its source and its destination.
fn flow(bytes: &[u8]) -> Option<(Flow, Ipv6Addr, Ipv6Addr)> {
    let packet = Packet::parse(bytes).filter(|packet| packet.protocol == TCP)?;
    let (local, remote) = packet.ports()?;
    let flow = Flow {
        local: std::net::SocketAddrV6::new(packet.source, local, 0, 0),
        remote: std::net::SocketAddrV6::new(packet.destination, remote, 0, 0),
    };
    Some((flow, packet.source, packet.destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Ipv6Addr = Ipv6Addr::new(0xfd7a, 0, 0, 0, 0, 0, 0, 1);
    const BOB: Ipv6Addr = Ipv6Addr::new(0xfd7a, 0, 0, 0, 0, 0, 0, 2);
    const ACK: u8 = 0x10;
    const FIN: u8 = 0x01;
    const RST: u8 = 0x04;

    fn packet(sequence: u32, flags: u8, text: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; 20];
        payload[..4].copy_from_slice(&[0, 80, 0x12, 0x34]);
        payload[4..8].copy_from_slice(&sequence.to_be_bytes());
        payload[12] = 0x50;
        payload[13] = flags;
        payload.extend_from_slice(text);
        let mut tcp = TcpPacket::new_unchecked(&mut payload[..]);
        tcp.fill_checksum(&IpAddress::Ipv6(ANN), &IpAddress::Ipv6(BOB));
        Packet { source: ANN, destination: BOB, protocol: TCP, payload: &payload }.to_bytes().unwrap()
    }

    fn corrected(sequences: &mut SentSequences, sequence: u32, flags: u8, text: &[u8]) -> u32 {
        let mut bytes = packet(sequence, flags, text);
        sequences.correct(&mut bytes);
        let tcp = TcpPacket::new_checked(&bytes[HEADER..]).unwrap();
        assert!(tcp.verify_checksum(&IpAddress::Ipv6(ANN), &IpAddress::Ipv6(BOB)));
        tcp.seq_number().0.cast_unsigned()
    }

    #[test]
    fn bare_acknowledgement_carries_the_highest_number() {
        let mut sequences = SentSequences::default();
        let near_the_end = u32::MAX - 3;
        assert_eq!(
            corrected(&mut sequences, near_the_end, ACK, b""),
            near_the_end,
            "nothing was sent before"
        );
        assert_eq!(corrected(&mut sequences, near_the_end, ACK, b"12345678"), near_the_end);
        // It sends the first bytes again.
        assert_eq!(corrected(&mut sequences, near_the_end, ACK, b"1234"), near_the_end);
        assert_eq!(corrected(&mut sequences, near_the_end, ACK, b""), 4);
        assert_eq!(corrected(&mut sequences, 4, ACK | FIN, b""), 4, "an end takes a number");
        assert_eq!(corrected(&mut sequences, near_the_end, ACK, b""), 5);
        assert_eq!(corrected(&mut sequences, 9, RST | ACK, b""), 9);
        let flow = flow(&packet(0, ACK, b"")).unwrap().0;
        sequences.forget(flow);
        assert_eq!(corrected(&mut sequences, near_the_end, ACK, b""), near_the_end);
    }
}
