//! The disco protocol, as far as relayed peers need it: ping and pong. `coder ping` and latency figures use it.
//!
//! Packet: six bytes that mark it, the sender's disco key, a nonce, and a NaCl box of the message.

use std::net::{Ipv6Addr, SocketAddrV6};

use crate::key::{DiscoPublic, LENGTH, NodePublic, SharedBox};

/// First bytes of every packet; no WireGuard packet begins with them.
pub const MAGIC: [u8; 6] = *b"TS\xf0\x9f\x92\xac";
/// Length of a transaction's id.
pub const TRANSACTION: usize = 12;
/// Longest packet that is opened, in bytes.
pub const LIMIT: usize = 2048;
/// What stands for a relay where an address is expected: 127.3.3.40, and the region as the port.
const RELAY_ADDRESS: Ipv6Addr = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0x7f03, 0x0328);

const PING: u8 = 1;
const PONG: u8 = 2;
const CALL_ME_MAYBE: u8 = 3;

/// A message. What follows the known fields is ignored, as official peers pad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Asks for a pong.
    Ping {
        /// Chosen by the sender.
        transaction: [u8; TRANSACTION],
        /// The sender's node key; old peers leave it out.
        node: Option<NodePublic>,
    },
    /// Answers a ping.
    Pong {
        /// That of the ping.
        transaction: [u8; TRANSACTION],
        /// Where the ping came from.
        source: SocketAddrV6,
    },
    /// The sender's addresses for direct UDP, which we do not use.
    CallMeMaybe,
}

impl Message {
    /// Reads an opened box; none when it is malformed or unknown.
    #[must_use]
    pub fn decode(text: &[u8]) -> Option<Self> {
        let (&[kind, _version], rest) = text.split_first_chunk::<2>()?;
        match kind {
            PING => {
                let (transaction, rest) = rest.split_first_chunk()?;
                let node = rest.first_chunk::<LENGTH>().copied().map(NodePublic::from_bytes);
                Some(Self::Ping { transaction: *transaction, node })
            }
            PONG => {
                let (transaction, rest) = rest.split_first_chunk()?;
                let (address, rest) = rest.split_first_chunk::<16>()?;
                let port = u16::from_be_bytes(*rest.first_chunk()?);
                let source = SocketAddrV6::new((*address).into(), port, 0, 0);
                Some(Self::Pong { transaction: *transaction, source })
            }
            CALL_ME_MAYBE => Some(Self::CallMeMaybe),
            _ => None,
        }
    }

    /// The text that is sealed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ping { transaction, node } => {
                let node = node.as_ref().map_or(&[][..], |node| node.as_bytes());
                [&[PING, 0], &transaction[..], node].concat()
            }
            Self::Pong { transaction, source } => {
                [&[PONG, 0], &transaction[..], &source.ip().octets(), &source.port().to_be_bytes()].concat()
            }
            Self::CallMeMaybe => vec![CALL_ME_MAYBE, 0],
        }
    }
}

/// What a pong through the relay of a region names as the ping's source.
#[must_use]
pub fn relay_source(region: i32) -> SocketAddrV6 {
    SocketAddrV6::new(RELAY_ADDRESS, u16::try_from(region).unwrap_or_default(), 0, 0)
}

/// The region of a relay's source.
#[must_use]
pub fn region_of(source: SocketAddrV6) -> Option<i32> {
    (*source.ip() == RELAY_ADDRESS).then(|| i32::from(source.port()))
}

/// The sender's key and the sealed message of a disco packet; none for other packets.
#[must_use]
pub fn split(packet: &[u8]) -> Option<(DiscoPublic, &[u8])> {
    let (key, sealed) = packet.strip_prefix(&MAGIC)?.split_first_chunk::<LENGTH>()?;
    (packet.len() <= LIMIT).then_some((DiscoPublic::from_bytes(*key), sealed))
}

/// A packet of `sender` for the other end of `shared`.
#[must_use]
pub fn packet(sender: &DiscoPublic, shared: &SharedBox, message: &Message) -> Vec<u8> {
    [&MAGIC[..], sender.as_bytes(), &shared.seal(&message.encode())].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::DiscoPrivate;

    #[test]
    fn messages_round_trip() {
        let node = Some(NodePublic::from_bytes([3; 32]));
        for message in [
            Message::Ping { transaction: [1; 12], node },
            Message::Ping { transaction: [1; 12], node: None },
            Message::Pong { transaction: [2; 12], source: relay_source(999) },
            Message::CallMeMaybe,
        ] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn ping_may_be_padded_and_may_not_be_cut() {
        let ping = Message::Ping { transaction: [1; 12], node: Some(NodePublic::from_bytes([3; 32])) };
        assert_eq!(Message::decode(&[&ping.encode()[..], &[0; 100]].concat()), Some(ping));
        assert_eq!(Message::decode(&ping.encode()[..13]), None);
        assert_eq!(Message::decode(&[9, 0, 0]), None);
    }

    /// The bytes of a pong through region 999.
    #[test]
    fn pong_names_the_relay() {
        let pong = Message::Pong { transaction: [7; 12], source: relay_source(999) };
        let expected = ["0200", &"07".repeat(12), "00000000000000000000ffff7f030328", "03e7"].concat();
        assert_eq!(hex::encode(pong.encode()), expected);
        assert_eq!(region_of(relay_source(999)), Some(999));
        assert_eq!(region_of(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 999, 0, 0)), None);
    }

    #[test]
    fn packet_opens_with_the_sender_key() {
        let (ann, bob) = (DiscoPrivate::generate(), DiscoPrivate::generate());
        let bytes = packet(&ann.public(), &ann.shared(&bob.public()), &Message::CallMeMaybe);
        assert_eq!(bytes[..6], [0x54, 0x53, 0xf0, 0x9f, 0x92, 0xac]);
        let (key, sealed) = split(&bytes).unwrap();
        let text = bob.shared(&key).open(sealed).unwrap();
        assert_eq!(Message::decode(&text), Some(Message::CallMeMaybe));
        assert_eq!(split(&bytes[..37]), None);
        assert_eq!(split(b"\x01\0\0\0"), None);
        assert_eq!(split(&[&bytes[..], &[0; LIMIT]].concat()), None);
    }
}
