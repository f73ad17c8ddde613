//! The twelve-byte header of the multiplexer (wire-protocol 2.1).

/// Length of a header in bytes.
pub const HEADER: usize = 12;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Payload of a stream follows the header.
    Data,
    /// Credit for the peer, or just a carrier of flags.
    WindowUpdate,
    /// Checks that the peer is alive.
    Ping,
    /// The sender accepts no further streams, or found an error.
    GoAway,
}

/// Bits of a header that open and close streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags(pub u16);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Opens a stream, or asks for the answer to a ping.
    pub const SYN: Self = Self(1);
    /// Acknowledges a stream, or answers a ping.
    pub const ACK: Self = Self(2);
    /// The sender writes nothing further to the stream.
    pub const FIN: Self = Self(4);
    /// The stream ends at once, in both directions.
    pub const RST: Self = Self(8);

    /// Whether every bit of `other` is set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A header without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// Opening and closing.
    pub flags: Flags,
    /// The stream, or 0 for the session.
    pub stream: u32,
    /// Data: bytes of payload. WindowUpdate: credit in bytes. Ping: opaque. GoAway: reason.
    pub length: u32,
}

/// Bytes that are not a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first byte is not 0.
    #[error("multiplexer version {0} is unknown; the peer does not speak yamux")]
    Version(u8),
    /// The second byte is above 3.
    #[error("multiplexer frame type {0} is unknown; the peer does not speak yamux")]
    Kind(u8),
}

impl Header {
    /// A header with these fields.
    #[must_use]
    pub const fn new(kind: Kind, flags: Flags, stream: u32, length: u32) -> Self {
        Self { kind, flags, stream, length }
    }

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[1] = match self.kind {
            Kind::Data => 0,
            Kind::WindowUpdate => 1,
            Kind::Ping => 2,
            Kind::GoAway => 3,
        };
        bytes[2..4].copy_from_slice(&self.flags.0.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.stream.to_be_bytes());
        bytes[8..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`FrameError`] when version or type are not known.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, FrameError> {
        let [version, kind, f0, f1, s0, s1, s2, s3, l0, l1, l2, l3] = *bytes;
        if version != 0 {
            return Err(FrameError::Version(version));
        }
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::WindowUpdate,
            2 => Kind::Ping,
            3 => Kind::GoAway,
            other => return Err(FrameError::Kind(other)),
        };
        Ok(Self {
            kind,
            flags: Flags(u16::from_be_bytes([f0, f1])),
            stream: u32::from_be_bytes([s0, s1, s2, s3]),
            length: u32::from_be_bytes([l0, l1, l2, l3]),
        })
    }
}

/// A frame of a capture.
pub type Frame<'a> = (Header, &'a [u8]);

/// Splits the complete frames off the front of `bytes`; the rest is an incomplete frame. An entry point for fuzzing and
/// for reading captures; a session never needs a whole frame in memory.
///
/// # Errors
/// [`FrameError`] of the first bad header.
pub fn parse(mut bytes: &[u8]) -> Result<(Vec<Frame<'_>>, &[u8]), FrameError> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEADER>() {
        let header = Header::decode(head)?;
        let length = if header.kind == Kind::Data { header.length as usize } else { 0 };
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((header, payload));
        bytes = rest;
    }
    Ok((frames, bytes))
}
