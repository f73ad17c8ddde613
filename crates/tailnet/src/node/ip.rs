//! IPv6 packets that do not go through the TCP stack: parsing and making them.

use std::net::{Ipv6Addr, SocketAddrV6};

use smoltcp::wire::{IpAddress, UdpPacket};

/// Length of an IPv6 header without extensions.
pub(super) const HEADER: usize = 40;
/// Length of a UDP header.
pub(super) const UDP_HEADER: usize = 8;
/// Numbers of protocols.
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;

const HOP_LIMIT: u8 = 64;

/// A packet's header and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    pub(super) source: Ipv6Addr,
    pub(super) destination: Ipv6Addr,
    pub(super) protocol: u8,
    pub(super) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
        let address = |at: usize| -> Option<Ipv6Addr> {
            header.get(at..at + 16)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
        };
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if header[0] >> 4 != 6 || length > payload.len() {
            return None;
        }
        Some(Self {
            source: address(8)?,
            destination: address(24)?,
            protocol: header[6],
            payload: &payload[..length],
        })
    }

    /// The packet in bytes; none when it is too long for the length field.
    pub(super) fn to_bytes(self) -> Option<Vec<u8>> {
        let length = u16::try_from(self.payload.len()).ok()?.to_be_bytes();
        let first = [0x60, 0, 0, 0, length[0], length[1], self.protocol, HOP_LIMIT];
        Some([&first[..], &self.source.octets(), &self.destination.octets(), self.payload].concat())
    }

    /// Source and destination port of a TCP packet, and whether it asks for a connection.
    pub(super) fn tcp(&self) -> Option<(u16, u16, bool)> {
        const SYN: u8 = 0x02;
        const RST_OR_ACK: u8 = 0x14;
        let (source, destination) = self.ports()?;
        let flags = *self.payload.get(13)?;
        Some((source, destination, flags & SYN != 0 && flags & RST_OR_ACK == 0))
    }

    pub(super) fn ports(&self) -> Option<(u16, u16)> {
        let &[a, b, c, d] = self.payload.first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Source, destination and text of a UDP packet whose checksum holds.
    pub(super) fn udp(&self) -> Option<(SocketAddrV6, SocketAddrV6, &'a [u8])> {
        let (source, destination) = self.ports()?;
        let packet = UdpPacket::new_checked(self.payload).ok()?;
        let address = |address| IpAddress::Ipv6(address);
        if packet.checksum() == 0
            || !packet.verify_checksum(&address(self.source), &address(self.destination))
        {
            return None;
        }
        let text = self.payload.get(UDP_HEADER..usize::from(packet.len()))?;
        let source = SocketAddrV6::new(self.source, source, 0, 0);
        Some((source, SocketAddrV6::new(self.destination, destination, 0, 0), text))
    }
}

/// A UDP packet in bytes; none when it is too long.
pub(super) fn udp(source: SocketAddrV6, destination: SocketAddrV6, text: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(UDP_HEADER + text.len()).ok()?;
    let mut payload = vec![0; UDP_HEADER];
    payload.extend_from_slice(text);
    let mut packet = UdpPacket::new_unchecked(&mut payload[..]);
    packet.set_src_port(source.port());
    packet.set_dst_port(destination.port());
    packet.set_len(length);
    packet.fill_checksum(&IpAddress::Ipv6(*source.ip()), &IpAddress::Ipv6(*destination.ip()));
    Packet { source: *source.ip(), destination: *destination.ip(), protocol: UDP, payload: &payload }
        .to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: Ipv6Addr = Ipv6Addr::new(0xfd7a, 0, 0, 0, 0, 0, 0, 1);
    const BOB: Ipv6Addr = Ipv6Addr::new(0xfd7a, 0, 0, 0, 0, 0, 0, 2);

    #[test]
    fn udp_round_trips_and_is_checked() {
        let (source, destination) = (SocketAddrV6::new(ANN, 5, 0, 0), SocketAddrV6::new(BOB, 53, 0, 0));
        let bytes = udp(source, destination, b"text").unwrap();
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.udp(), Some((source, destination, &b"text"[..])));
        let mut changed = bytes.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(Packet::parse(&changed).unwrap().udp(), None);
        let mut longer = bytes.clone();
        longer[HEADER + 5] += 1;
        assert_eq!(Packet::parse(&longer).unwrap().udp(), None);
        assert!(udp(source, destination, &vec![0; 1 << 16]).is_none());
    }

    #[test]
    fn cut_and_foreign_packets_are_none() {
        let bytes = udp(SocketAddrV6::new(ANN, 5, 0, 0), SocketAddrV6::new(BOB, 53, 0, 0), b"text").unwrap();
        for length in 0..bytes.len() {
            assert_eq!(Packet::parse(&bytes[..length]), None, "{length}");
        }
        let mut four = bytes;
        four[0] = 0x45;
        assert_eq!(Packet::parse(&four), None);
    }

    #[test]
    fn only_a_bare_syn_asks_for_a_connection() {
        for (flags, asks) in
            [(0x02, true), (0x12, false), (0x10, false), (0x06, false), (0x04, false), (0xc2, true)]
        {
            let mut payload = [0; 20];
            payload[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
            payload[13] = flags;
            let packet = Packet { source: ANN, destination: BOB, protocol: TCP, payload: &payload };
            assert_eq!(packet.tcp(), Some((0x1234, 80, asks)), "{flags:#x}");
        }
    }
}
