//! TSMP: ping and pong inside the tunnel (IP protocol 99). Official peers open no connection to an agent before it answered one.

/// Number of the IP protocol.
pub const PROTOCOL: u8 = 99;
/// Length of a ping's data.
pub const DATA: usize = 8;

const PING: u8 = b'p';
const PONG: u8 = b'o';

/// A message: the payload of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Asks for a pong.
    Ping([u8; DATA]),
    /// Answers a ping, with its data. The port of the HTTP API that follows is always zero here.
    Pong([u8; DATA]),
}

impl Message {
    /// Reads a payload; none when it is malformed or of another kind.
    #[must_use]
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (kind, rest) = payload.split_first()?;
        let data = *rest.first_chunk()?;
        match *kind {
            PING => Some(Self::Ping(data)),
            PONG => Some(Self::Pong(data)),
            _ => None,
        }
    }

    /// The payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Ping(data) => [&[PING], &data[..]].concat(),
            Self::Pong(data) => [&[PONG], &data[..], &[0, 0]].concat(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_are_those_of_official_peers() {
        let data = [1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(hex::encode(Message::Ping(data).encode()), "700102030405060708");
        assert_eq!(hex::encode(Message::Pong(data).encode()), "6f01020304050607080000");
        for message in [Message::Ping(data), Message::Pong(data)] {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn other_payloads_are_ignored() {
        for payload in [&b""[..], b"p", b"p1234567", b"r12345678"] {
            assert_eq!(Message::decode(payload), None, "{payload:?}");
        }
    }
}
