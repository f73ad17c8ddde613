//! Frames between servers: a type byte, the length of the body in 32 bits, big endian, and the body. Each record of a
//! connection ([`super::record`]) holds whole frames.

use uuid::Uuid;

use crate::derp::PACKET;
use crate::key::{LENGTH, NodePublic};

/// Length of a frame's header in bytes.
const HEADER: usize = 5;
/// Length of an id in bytes.
const ID: usize = 16;

mod kind {
    pub(super) const KEY: u8 = 1;
    pub(super) const KEY_GONE: u8 = 2;
    pub(super) const PACKET: u8 = 3;
    pub(super) const SENDER_GONE: u8 = 4;
    pub(super) const PEER: u8 = 5;
    pub(super) const PEER_GONE: u8 = 6;
    pub(super) const TUNNEL: u8 = 7;
    pub(super) const READY: u8 = 8;
    pub(super) const COMPLETE: u8 = 9;
    pub(super) const PING: u8 = 10;
    pub(super) const PONG: u8 = 11;
}

/// A frame whose bytes lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// A node with this key is connected to the sender's relay and receives there.
    Key(NodePublic),
    /// No node with this key is connected to the sender's relay any more.
    KeyLeft(NodePublic),
    /// A packet for a node at the receiver's relay.
    Packet {
        /// The receiver.
        to: NodePublic,
        /// The sender.
        from: NodePublic,
        /// At most [`PACKET`] bytes.
        packet: &'a [u8],
    },
    /// A node that sent packets to another has left its relay.
    SenderGone {
        /// Who is notified.
        to: NodePublic,
        /// Who has left.
        peer: NodePublic,
    },
    /// A peer is connected to the sender's coordinator.
    Peer {
        /// Its id.
        id: Uuid,
        /// The number of its connection; the highest counts.
        number: u64,
        /// The message `Node` as bytes; empty while it has announced none.
        node: &'a [u8],
    },
    /// A peer has left the sender's coordinator.
    PeerGone {
        /// Its id.
        id: Uuid,
        /// Whether it disconnected, or may not take part any more. Otherwise its connection was lost.
        is_revoked: bool,
    },
    /// A peer opened or closed a tunnel.
    Tunnel {
        /// The peer.
        from: Uuid,
        /// The other end.
        to: Uuid,
        /// Whether there is one.
        exists: bool,
    },
    /// A peer is ready for a handshake.
    Ready {
        /// The peer.
        from: Uuid,
        /// Who may begin.
        to: Uuid,
    },
    /// All peers and tunnels that were there at the beginning of the connection have been told.
    Complete,
    /// Asks for a pong.
    Ping,
    /// Answers a ping.
    Pong,
    /// A type that is not known here, to be ignored.
    Unknown(u8),
}

/// The other server broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of another server is malformed (type {0})")]
pub struct Malformed(u8);

impl<'a> Frame<'a> {
    /// Hands every frame of a record to `each`, in order.
    ///
    /// # Errors
    /// [`Malformed`], or what `each` returned.
    pub fn read_all<E: From<Malformed>>(
        mut record: &'a [u8],
        mut each: impl FnMut(Self) -> Result<(), E>,
    ) -> Result<(), E> {
        while let Some((kind, _)) = record.split_first() {
            let malformed = || Malformed(*kind);
            let (head, rest) = record.split_first_chunk::<HEADER>().ok_or_else(malformed)?;
            let [kind, length @ ..] = *head;
            let length = usize::try_from(u32::from_be_bytes(length)).map_err(|_| malformed())?;
            let (body, rest) = rest.split_at_checked(length).ok_or_else(malformed)?;
            each(Self::parse(kind, body).ok_or_else(malformed)?)?;
            record = rest;
        }
        Ok(())
    }

    fn parse(kind: u8, body: &'a [u8]) -> Option<Self> {
        let mut body = Body(body);
        let frame = match kind {
            kind::KEY => Self::Key(body.key()?),
            kind::KEY_GONE => Self::KeyLeft(body.key()?),
            kind::PACKET => {
                Self::Packet { to: body.key()?, from: body.key()?, packet: body.rest_up_to(PACKET)? }
            }
            kind::SENDER_GONE => Self::SenderGone { to: body.key()?, peer: body.key()? },
            kind::PEER => {
                let (id, number) = (body.id()?, u64::from_be_bytes(*body.take()?));
                Self::Peer { id, number, node: body.rest_up_to(super::NODE)? }
            }
            kind::PEER_GONE => Self::PeerGone { id: body.id()?, is_revoked: body.flag()? },
            kind::TUNNEL => Self::Tunnel { from: body.id()?, to: body.id()?, exists: body.flag()? },
            kind::READY => Self::Ready { from: body.id()?, to: body.id()? },
            kind::COMPLETE => Self::Complete,
            kind::PING => Self::Ping,
            kind::PONG => Self::Pong,
            other => Self::Unknown(other),
        };
        Some(frame)
    }

    /// Appends the frame; nothing for [`Frame::Unknown`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Key(key) => put(out, kind::KEY, &[key.as_bytes()]),
            Self::KeyLeft(key) => put(out, kind::KEY_GONE, &[key.as_bytes()]),
            Self::Packet { to, from, packet } => {
                put(out, kind::PACKET, &[to.as_bytes(), from.as_bytes(), packet]);
            }
            Self::SenderGone { to, peer } => put(out, kind::SENDER_GONE, &[to.as_bytes(), peer.as_bytes()]),
            Self::Peer { id, number, node } => {
                put(out, kind::PEER, &[id.as_bytes(), &number.to_be_bytes(), node]);
            }
            Self::PeerGone { id, is_revoked } => {
                put(out, kind::PEER_GONE, &[id.as_bytes(), &[u8::from(*is_revoked)]]);
            }
            Self::Tunnel { from, to, exists } => {
                put(out, kind::TUNNEL, &[from.as_bytes(), to.as_bytes(), &[u8::from(*exists)]]);
            }
            Self::Ready { from, to } => put(out, kind::READY, &[from.as_bytes(), to.as_bytes()]),
            Self::Complete => put(out, kind::COMPLETE, &[]),
            Self::Ping => put(out, kind::PING, &[]),
            Self::Pong => put(out, kind::PONG, &[]),
            Self::Unknown(_) => {}
        }
    }
}

/// Appends the header of a frame and its body.
fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    out.push(kind);
    out.extend_from_slice(&u32::try_from(length).expect("bodies are bounded far below").to_be_bytes());
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// What is left of a body.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn take<const N: usize>(&mut self) -> Option<&'a [u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(taken)
    }

    fn key(&mut self) -> Option<NodePublic> {
        self.take::<LENGTH>().map(|bytes| NodePublic::from_bytes(*bytes))
    }

    fn id(&mut self) -> Option<Uuid> {
        self.take::<ID>().map(|bytes| Uuid::from_bytes(*bytes))
    }

    fn flag(&mut self) -> Option<bool> {
        self.take::<1>().map(|[flag]| *flag != 0)
    }

    fn rest_up_to(&self, limit: usize) -> Option<&'a [u8]> {
        (self.0.len() <= limit).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: NodePublic = NodePublic::from_bytes([0x11; LENGTH]);
    const OTHER: NodePublic = NodePublic::from_bytes([0x22; LENGTH]);

    fn all() -> Vec<Frame<'static>> {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        vec![
            Frame::Key(KEY),
            Frame::KeyLeft(OTHER),
            Frame::Packet { to: KEY, from: OTHER, packet: b"packet" },
            Frame::SenderGone { to: KEY, peer: OTHER },
            Frame::Peer { id: one, number: 1 << 40, node: b"node" },
            Frame::PeerGone { id: one, is_revoked: true },
            Frame::Tunnel { from: one, to: two, exists: false },
            Frame::Ready { from: two, to: one },
            Frame::Complete,
            Frame::Ping,
            Frame::Pong,
        ]
    }

    fn read(record: &[u8]) -> Result<Vec<Frame<'_>>, Malformed> {
        let mut frames = Vec::new();
        Frame::read_all::<Malformed>(record, |frame| {
            frames.push(frame);
            Ok(())
        })?;
        Ok(frames)
    }

    #[test]
    fn frames_are_read_as_they_were_written() {
        let mut record = Vec::new();
        for frame in all() {
            frame.encode(&mut record);
        }
        put(&mut record, 200, &[b"of a newer release"]);
        let mut expected = all();
        expected.push(Frame::Unknown(200));
        assert_eq!(read(&record), Ok(expected));
    }

    #[test]
    fn cut_frames_are_malformed() {
        for frame in all() {
            let mut record = Vec::new();
            frame.encode(&mut record);
            assert!(read(&record[..record.len() - 1]).is_err(), "{frame:?}");
            // The same body without its last byte, as far as that belongs to the frame.
            let body = record.len() - HEADER;
            let has_rest = matches!(frame, Frame::Packet { .. } | Frame::Peer { .. });
            if body > 0 && !has_rest {
                record.pop();
                record[1..HEADER].copy_from_slice(&u32::try_from(body - 1).unwrap().to_be_bytes());
                assert!(read(&record).is_err(), "{frame:?}");
            }
        }
    }

    #[test]
    fn long_packets_are_malformed() {
        let (mut record, packet) = (Vec::new(), vec![1; PACKET + 1]);
        Frame::Packet { to: KEY, from: OTHER, packet: &packet[1..] }.encode(&mut record);
        assert_eq!(read(&record).unwrap().len(), 1);
        record.clear();
        Frame::Packet { to: KEY, from: OTHER, packet: &packet }.encode(&mut record);
        assert!(read(&record).is_err());
    }
}
