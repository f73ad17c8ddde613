//! The exchange at the start of a connection: the relay's key, the client's key with a box that proves it, and the relay's box.
//!
//! Each text is JSON inside a NaCl box between the two keys.

use serde::{Deserialize, Serialize};

use crate::key::{NodePrivate, NodePublic};

/// The version of the protocol that both sides name.
pub const VERSION: u32 = 2;
/// Longest body of a frame of the handshake, in bytes.
pub const LIMIT: usize = 4096;

/// A client's description of itself. Unknown fields are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientInfo {
    /// [`VERSION`].
    #[serde(default)]
    pub version: u32,
    /// Whether it answers pings of the relay.
    #[serde(default, rename = "CanAckPings")]
    pub can_ack_pings: bool,
}

/// A relay's description of itself. Unknown fields are ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerInfo {
    /// [`VERSION`].
    #[serde(default)]
    pub version: u32,
}

/// The peer does not have the key that it names, or speaks another protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The box does not open.
    #[error("the peer does not have the private key of {0}")]
    Key(NodePublic),
    /// The zero key.
    #[error("the peer has no key")]
    NoKey,
    /// The text in the box is not the JSON that it should be.
    #[error("the peer's description of itself is malformed")]
    Malformed,
    /// Packets would have another form.
    #[error("the peer speaks version {0} of DERP; version {VERSION} is needed")]
    Version(u32),
}

/// Nonce and box of a value for `peer`.
#[must_use]
pub fn seal(private: &NodePrivate, peer: &NodePublic, value: &impl Serialize) -> Vec<u8> {
    let text = serde_json::to_vec(value).expect("it has only numbers and flags");
    private.shared(peer).seal(&text)
}

/// Opens a client's description of itself, which proves its key.
///
/// # Errors
/// [`Error`] when it does not.
pub fn open_client(private: &NodePrivate, client: &NodePublic, sealed: &[u8]) -> Result<ClientInfo, Error> {
    let info: ClientInfo = open(private, client, sealed)?;
    if info.version != VERSION { Err(Error::Version(info.version)) } else { Ok(info) }
}

/// Opens a relay's description of itself, which proves its key.
///
/// # Errors
/// [`Error`] when it does not.
pub fn open_server(private: &NodePrivate, server: &NodePublic, sealed: &[u8]) -> Result<ServerInfo, Error> {
    open(private, server, sealed)
}

fn open<T: for<'a> Deserialize<'a>>(
    private: &NodePrivate,
    peer: &NodePublic,
    sealed: &[u8],
) -> Result<T, Error> {
    if peer.is_zero() {
        // Everybody can make boxes of the zero key.
        return Err(Error::NoKey);
    }
    let text = private.shared(peer).open(sealed).ok_or(Error::Key(*peer))?;
    serde_json::from_slice(&text).map_err(|_| Error::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_that_of_official_peers() {
        let info = ClientInfo { version: 2, can_ack_pings: true };
        assert_eq!(serde_json::to_string(&info).unwrap(), r#"{"version":2,"CanAckPings":true}"#);
        let official = r#"{"meshKey":"","version":2,"CanAckPings":true,"IsProber":false}"#;
        assert_eq!(serde_json::from_str::<ClientInfo>(official).unwrap(), info);
        assert_eq!(serde_json::to_string(&ServerInfo { version: 2 }).unwrap(), r#"{"version":2}"#);
    }

    #[test]
    fn key_is_proven_by_the_box() {
        let (relay, client, other) =
            (NodePrivate::generate(), NodePrivate::generate(), NodePrivate::generate());
        let sealed = seal(&client, &relay.public(), &ClientInfo { version: 2, can_ack_pings: false });
        assert!(open_client(&relay, &client.public(), &sealed).is_ok());
        assert_eq!(open_client(&relay, &other.public(), &sealed), Err(Error::Key(other.public())));
        let zero = NodePublic::from_bytes([0; 32]);
        assert_eq!(open_client(&relay, &zero, &sealed), Err(Error::NoKey));
        let old = seal(&client, &relay.public(), &ClientInfo { version: 1, can_ack_pings: false });
        assert_eq!(open_client(&relay, &client.public(), &old), Err(Error::Version(1)));
        let text = seal(&client, &relay.public(), &"text");
        assert_eq!(open_client(&relay, &client.public(), &text), Err(Error::Malformed));
    }
}
