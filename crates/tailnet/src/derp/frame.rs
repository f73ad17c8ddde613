//! Frames: a type byte, the length of the body in 32 bits, big endian, and the body.

use std::time::Duration;

use super::PACKET;
use crate::key::{LENGTH, NodePublic};

/// Length of a frame's header in bytes.
pub const HEADER: usize = 5;
/// Longest body that is kept, in bytes: a packet and two keys.
pub const BODY: usize = PACKET + 2 * LENGTH;
/// Longest body of an unknown type. It is skipped as it arrives.
const SKIPPED: usize = 10 << 20;
/// What the first frame of a relay begins with.
pub const MAGIC: [u8; 8] = *b"DERP\xf0\x9f\x94\x91";

/// The types that are known here.
pub mod kind {
    /// Relay to client: its key, the first frame of a connection.
    pub const SERVER_KEY: u8 = 0x01;
    /// Client to relay: its key and a box that proves it.
    pub const CLIENT_INFO: u8 = 0x02;
    /// Relay to client: a box, the end of the handshake.
    pub const SERVER_INFO: u8 = 0x03;
    /// Client to relay: destination and packet.
    pub const SEND_PACKET: u8 = 0x04;
    /// Relay to client: source and packet.
    pub const RECV_PACKET: u8 = 0x05;
    /// Relay to client: nothing.
    pub const KEEP_ALIVE: u8 = 0x06;
    /// Client to relay: whether this relay is the client's home.
    pub const NOTE_PREFERRED: u8 = 0x07;
    /// Relay to client: a peer has no connection here.
    pub const PEER_GONE: u8 = 0x08;
    /// Either: asks for a pong.
    pub const PING: u8 = 0x12;
    /// Either: answers a ping.
    pub const PONG: u8 = 0x13;
    /// Relay to client: what is wrong with the connection, or nothing.
    pub const HEALTH: u8 = 0x14;
    /// Relay to client: it restarts.
    pub const RESTARTING: u8 = 0x15;
}

/// Why a peer is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoneReason {
    /// It had a connection.
    Disconnected,
    /// The relay does not know it.
    NotHere,
}

/// A frame whose bytes lie elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Frame<'a> {
    /// See [`kind::SERVER_KEY`].
    ServerKey(NodePublic),
    /// See [`kind::CLIENT_INFO`].
    ClientInfo {
        /// The client's key.
        key: NodePublic,
        /// Nonce and box.
        sealed: &'a [u8],
    },
    /// See [`kind::SERVER_INFO`]: nonce and box.
    ServerInfo(&'a [u8]),
    /// See [`kind::SEND_PACKET`].
    SendPacket {
        /// The receiver.
        to: NodePublic,
        /// At most [`PACKET`] bytes.
        packet: &'a [u8],
    },
    /// See [`kind::RECV_PACKET`].
    RecvPacket {
        /// The sender.
        from: NodePublic,
        /// At most [`PACKET`] bytes.
        packet: &'a [u8],
    },
    /// See [`kind::KEEP_ALIVE`].
    KeepAlive,
    /// See [`kind::NOTE_PREFERRED`].
    NotePreferred(bool),
    /// See [`kind::PEER_GONE`].
    PeerGone {
        /// The peer.
        peer: NodePublic,
        /// Why.
        reason: GoneReason,
    },
    /// See [`kind::PING`].
    Ping([u8; 8]),
    /// See [`kind::PONG`].
    Pong([u8; 8]),
    /// See [`kind::HEALTH`].
    Health(&'a str),
    /// See [`kind::RESTARTING`].
    Restarting {
        /// When to connect again.
        reconnect_in: Duration,
        /// How long to try.
        try_for: Duration,
    },
    /// A type that is not known here, to be ignored.
    Unknown(u8),
}

/// The peer broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A body over the limit of its type.
    #[error("a DERP frame of type {kind:#04x} has {length} bytes; {limit} are allowed")]
    TooLong {
        /// The type.
        kind: u8,
        /// The declared length.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// A body that is too short or not what its type says.
    #[error("a DERP frame of type {0:#04x} is malformed")]
    Malformed(u8),
}

impl<'a> Frame<'a> {
    /// Reads a whole body.
    ///
    /// # Errors
    /// [`Error::Malformed`] when it is not what its type says.
    pub fn parse(kind: u8, body: &'a [u8]) -> Result<Self, Error> {
        Self::parse_known(kind, body).ok_or(Error::Malformed(kind))
    }

    fn parse_known(kind: u8, body: &'a [u8]) -> Option<Self> {
        fn key(body: &[u8]) -> Option<(NodePublic, &[u8])> {
            body.split_first_chunk::<LENGTH>().map(|(key, rest)| (NodePublic::from_bytes(*key), rest))
        }
        let frame = match kind {
            kind::SERVER_KEY => Self::ServerKey(key(body.strip_prefix(&MAGIC)?)?.0),
            kind::CLIENT_INFO => {
                let (key, sealed) = key(body)?;
                Self::ClientInfo { key, sealed }
            }
            kind::SERVER_INFO => Self::ServerInfo(body),
            kind::SEND_PACKET | kind::RECV_PACKET => {
                let (peer, packet) = key(body)?;
                if packet.len() > PACKET {
                    return None;
                }
                if kind == kind::SEND_PACKET {
                    Self::SendPacket { to: peer, packet }
                } else {
                    Self::RecvPacket { from: peer, packet }
                }
            }
            kind::KEEP_ALIVE => Self::KeepAlive,
            kind::NOTE_PREFERRED => Self::NotePreferred(*body.first()? != 0),
            kind::PEER_GONE => {
                let (peer, rest) = key(body)?;
                // Old relays give no reason.
                let reason = match rest.first() {
                    Some(1) => GoneReason::NotHere,
                    _ => GoneReason::Disconnected,
                };
                Self::PeerGone { peer, reason }
            }
            kind::PING => Self::Ping(*body.first_chunk()?),
            kind::PONG => Self::Pong(*body.first_chunk()?),
            kind::HEALTH => Self::Health(std::str::from_utf8(body).ok()?),
            kind::RESTARTING => {
                let (reconnect_in, rest) = body.split_first_chunk::<4>()?;
                let millis = |bytes: &[u8; 4]| Duration::from_millis(u32::from_be_bytes(*bytes).into());
                Self::Restarting {
                    reconnect_in: millis(reconnect_in),
                    try_for: millis(rest.first_chunk::<4>()?),
                }
            }
            other => Self::Unknown(other),
        };
        Some(frame)
    }

    /// Appends the frame; nothing for [`Frame::Unknown`].
    ///
    /// # Panics
    /// When the body is longer than [`BODY`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let millis = |time: &Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).to_be_bytes();
        match self {
            Self::ServerKey(key) => put(out, kind::SERVER_KEY, &[&MAGIC, key.as_bytes()]),
            Self::ClientInfo { key, sealed } => put(out, kind::CLIENT_INFO, &[key.as_bytes(), sealed]),
            Self::ServerInfo(sealed) => put(out, kind::SERVER_INFO, &[sealed]),
            Self::SendPacket { to, packet } => put(out, kind::SEND_PACKET, &[to.as_bytes(), packet]),
            Self::RecvPacket { from, packet } => put(out, kind::RECV_PACKET, &[from.as_bytes(), packet]),
            Self::KeepAlive => put(out, kind::KEEP_ALIVE, &[]),
            Self::NotePreferred(home) => put(out, kind::NOTE_PREFERRED, &[&[u8::from(*home)]]),
            Self::PeerGone { peer, reason } => {
                put(out, kind::PEER_GONE, &[peer.as_bytes(), &[u8::from(*reason == GoneReason::NotHere)]]);
            }
            Self::Ping(data) => put(out, kind::PING, &[data]),
            Self::Pong(data) => put(out, kind::PONG, &[data]),
            Self::Health(text) => put(out, kind::HEALTH, &[text.as_bytes()]),
            Self::Restarting { reconnect_in, try_for } => {
                put(out, kind::RESTARTING, &[&millis(reconnect_in), &millis(try_for)]);
            }
            Self::Unknown(_) => {}
        }
    }
}

fn put(out: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum();
    out.extend_from_slice(&header(kind, length));
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// The header of a frame.
///
/// # Panics
/// When the body is longer than [`BODY`].
#[must_use]
pub fn header(kind: u8, length: usize) -> [u8; HEADER] {
    assert!(length <= BODY, "a frame of {length} bytes was made");
    let [a, b, c, d] = u32::try_from(length).expect("it is below the limit").to_be_bytes();
    [kind, a, b, c, d]
}

/// Finds the frames in a stream of bytes. Whole frames are read where they lie; only the beginning of an incomplete one is
/// kept, so that an idle connection keeps nothing.
#[derive(Debug)]
pub struct Decoder {
    partial: Vec<u8>,
    /// Bytes of an unknown frame that have yet to come.
    skip: usize,
    limit: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::with_limit(BODY)
    }
}

impl Decoder {
    /// A decoder whose known frames have bodies of at most `limit` bytes, and at most [`BODY`].
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { partial: Vec::new(), skip: 0, limit: limit.min(BODY) }
    }

    /// Hands every frame that is complete with `bytes` to `each`, in order.
    ///
    /// # Errors
    /// [`Error`] when the peer broke the protocol, or what `each` returned.
    pub fn decode<E: From<Error>>(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(Frame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let count = self.skip.min(bytes.len());
                self.skip -= count;
                bytes = &bytes[count..];
                continue;
            }
            // What was kept is completed to a header, then to a frame; without it the frame may lie whole in `bytes`.
            if !self.partial.is_empty() {
                let wanted = match self.partial.first_chunk() {
                    None => HEADER,
                    Some(head) => HEADER + self.body(*head)?.unwrap_or_default(),
                };
                let count = (wanted - self.partial.len()).min(bytes.len());
                self.partial.extend_from_slice(&bytes[..count]);
                bytes = &bytes[count..];
                let Some(head) = self.partial.first_chunk() else { continue };
                match self.body(*head)? {
                    None => {
                        self.skip = length(*head);
                        each(Frame::Unknown(head[0]))?;
                        self.partial = Vec::new();
                    }
                    Some(body) if self.partial.len() == HEADER + body => {
                        let frame = std::mem::take(&mut self.partial);
                        each(Frame::parse(frame[0], &frame[HEADER..])?)?;
                    }
                    Some(_) => {}
                }
                continue;
            }
            let Some((head, rest)) = bytes.split_first_chunk() else {
                self.partial.extend_from_slice(bytes);
                break;
            };
            match self.body(*head)?.map(|body| rest.split_at_checked(body)) {
                None => {
                    self.skip = length(*head);
                    each(Frame::Unknown(head[0]))?;
                    bytes = rest;
                }
                Some(Some((body, rest))) => {
                    each(Frame::parse(head[0], body)?)?;
                    bytes = rest;
                }
                Some(None) => {
                    self.partial.extend_from_slice(bytes);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Length of the body behind a header; none when it is skipped.
    fn body(&self, head: [u8; HEADER]) -> Result<Option<usize>, Error> {
        let (kind, length) = (head[0], length(head));
        let known = matches!(kind, kind::SERVER_KEY..=kind::PEER_GONE | kind::PING..=kind::RESTARTING);
        let limit = if known { self.limit } else { SKIPPED };
        if length > limit {
            return Err(Error::TooLong { kind, length, limit });
        }
        Ok(known.then_some(length))
    }
}

fn length([_, a, b, c, d]: [u8; HEADER]) -> usize {
    u32::from_be_bytes([a, b, c, d]) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: NodePublic = NodePublic::from_bytes([0x11; LENGTH]);

    fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<String>, Error> {
        let mut frames = Vec::new();
        decoder.decode::<Error>(bytes, |frame| {
            frames.push(format!("{frame:?}"));
            Ok(())
        })?;
        Ok(frames)
    }

    fn all() -> Vec<Frame<'static>> {
        vec![
            Frame::ServerKey(KEY),
            Frame::ClientInfo { key: KEY, sealed: b"sealed" },
            Frame::ServerInfo(b"sealed"),
            Frame::SendPacket { to: KEY, packet: b"packet" },
            Frame::RecvPacket { from: KEY, packet: b"" },
            Frame::KeepAlive,
            Frame::NotePreferred(true),
            Frame::PeerGone { peer: KEY, reason: GoneReason::NotHere },
            Frame::PeerGone { peer: KEY, reason: GoneReason::Disconnected },
            Frame::Ping(*b"12345678"),
            Frame::Pong(*b"12345678"),
            Frame::Health("slow"),
            Frame::Restarting { reconnect_in: Duration::from_millis(1), try_for: Duration::from_secs(2) },
        ]
    }

    /// agent 3.5.
    #[test]
    fn bytes_are_those_of_official_peers() {
        let key = "11".repeat(32);
        for (frame, expected) in [
            (Frame::ServerKey(KEY), format!("010000002844455250f09f9491{key}")),
            (Frame::SendPacket { to: KEY, packet: b"ab" }, format!("0400000022{key}6162")),
            (Frame::RecvPacket { from: KEY, packet: b"ab" }, format!("0500000022{key}6162")),
            (Frame::KeepAlive, "0600000000".to_owned()),
            (Frame::NotePreferred(true), "070000000101".to_owned()),
            (Frame::PeerGone { peer: KEY, reason: GoneReason::NotHere }, format!("0800000021{key}01")),
            (Frame::Ping([1; 8]), "12000000080101010101010101".to_owned()),
            (Frame::Pong([1; 8]), "13000000080101010101010101".to_owned()),
            (Frame::Health("x"), "140000000178".to_owned()),
            (
                Frame::Restarting {
                    reconnect_in: Duration::from_millis(10),
                    try_for: Duration::from_secs(1),
                },
                "15000000080000000a000003e8".to_owned(),
            ),
        ] {
            let mut out = Vec::new();
            frame.encode(&mut out);
            assert_eq!(hex::encode(&out), expected, "{frame:?}");
        }
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        for frame in all() {
            frame.encode(&mut bytes);
        }
        bytes.extend_from_slice(&[0x77, 0, 0, 0, 3, 1, 2, 3]);
        Frame::KeepAlive.encode(&mut bytes);
        let whole = decode(&mut Decoder::default(), &bytes).unwrap();
        assert_eq!(whole.len(), all().len() + 2);
        for size in 1..80 {
            let mut decoder = Decoder::default();
            let pieces = bytes.chunks(size).flat_map(|piece| decode(&mut decoder, piece).unwrap());
            assert_eq!(pieces.collect::<Vec<_>>(), whole, "pieces of {size}");
            assert_eq!(decoder.partial.capacity(), 0, "an idle connection keeps nothing");
        }
    }

    #[test]
    fn long_bodies_are_refused_by_their_header() {
        let mut decoder = Decoder::default();
        let long = [kind::SEND_PACKET, 0, 2, 0, 0];
        let error = Error::TooLong { kind: kind::SEND_PACKET, length: 2 << 16, limit: BODY };
        assert_eq!(decode(&mut decoder, &long), Err(error));
        let mut decoder = Decoder::with_limit(100);
        assert!(decode(&mut decoder, &[kind::CLIENT_INFO, 0, 0, 0, 101]).is_err());
        assert!(decode(&mut Decoder::default(), &[0x77, 0xff, 0, 0, 0]).is_err());
    }

    #[test]
    fn longest_packet_is_taken_and_one_byte_more_is_not() {
        let packet = vec![1; PACKET];
        let mut bytes = Vec::new();
        Frame::SendPacket { to: KEY, packet: &packet }.encode(&mut bytes);
        assert_eq!(decode(&mut Decoder::default(), &bytes).unwrap().len(), 1);
        let body = [&KEY.as_bytes()[..], &packet, &[0]].concat();
        assert_eq!(Frame::parse(kind::SEND_PACKET, &body), Err(Error::Malformed(kind::SEND_PACKET)));
    }

    #[test]
    fn cut_bodies_are_malformed() {
        for frame in all() {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            let (kind, body) = (bytes[0], &bytes[HEADER..]);
            assert_eq!(Frame::parse(kind, body), Ok(frame));
            let shortest = match kind {
                kind::KEEP_ALIVE | kind::SERVER_INFO | kind::HEALTH => continue,
                kind::CLIENT_INFO | kind::SEND_PACKET | kind::RECV_PACKET | kind::PEER_GONE => LENGTH,
                _ => body.len(),
            };
            assert_eq!(Frame::parse(kind, &body[..shortest - 1]), Err(Error::Malformed(kind)), "{frame:?}");
        }
        assert!(Frame::parse(kind::SERVER_KEY, &[b'x'; 40]).is_err(), "the magic is checked");
        assert!(Frame::parse(kind::HEALTH, &[0xff]).is_err());
    }
}
