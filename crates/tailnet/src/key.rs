//! Curve25519 keys of a node and of its disco protocol: text and wire forms, and NaCl boxes between them.

use std::fmt;
use std::str::FromStr;

use crypto_box::aead::{Aead as _, AeadCore as _};
use crypto_box::{PublicKey, SalsaBox, SecretKey};

/// Length of a key in bytes.
pub const LENGTH: usize = 32;
/// Length of a box's nonce in bytes. A sealed text is the nonce and the box.
pub const NONCE: usize = 24;
/// What a node key begins with in `Node.key`.
const BINARY_PREFIX: &[u8] = b"np";

/// A text or a byte string is not the key that it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a {kind}: {problem}")]
pub struct ParseError {
    kind: &'static str,
    problem: &'static str,
}

macro_rules! public_key {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; LENGTH]);

        impl $name {
            /// The key with these bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; LENGTH]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; LENGTH] {
                &self.0
            }

            /// Whether it is the zero key, which stands for no key.
            #[must_use]
            pub fn is_zero(&self) -> bool {
                self.0 == [0; LENGTH]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}:{}", $prefix, hex::encode(self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                let error = |problem| ParseError { kind: $prefix, problem };
                let digits = text
                    .strip_prefix(concat!($prefix, ":"))
                    .ok_or(error(concat!("it does not begin with ", $prefix, ":")))?;
                let mut bytes = [0; LENGTH];
                hex::decode_to_slice(digits, &mut bytes)
                    .map_err(|_| error("it does not have 64 hexadecimal digits"))?;
                Ok(Self(bytes))
            }
        }
    };
}

public_key! {
    /// A node's public key: its WireGuard key and its identity at a relay.
    NodePublic, "nodekey"
}
public_key! {
    /// The public key of a node's disco protocol.
    DiscoPublic, "discokey"
}

impl NodePublic {
    /// Reads the form that `Node.key` has.
    ///
    /// # Errors
    /// [`ParseError`] when the bytes have another prefix or length.
    pub fn from_binary(bytes: &[u8]) -> Result<Self, ParseError> {
        let error = |problem| ParseError { kind: "nodekey", problem };
        let key = bytes.strip_prefix(BINARY_PREFIX).ok_or(error("its bytes do not begin with np"))?;
        let key = key.try_into().map_err(|_| error("it does not have 32 bytes"))?;
        Ok(Self(key))
    }

    /// The form that `Node.key` has.
    #[must_use]
    pub fn to_binary(&self) -> Vec<u8> {
        [BINARY_PREFIX, &self.0].concat()
    }
}

macro_rules! private_key {
    ($(#[$doc:meta])* $name:ident, $public:ident) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(SecretKey);

        impl $name {
            /// A new random key.
            ///
            /// # Panics
            /// When the operating system gives no random bytes.
            #[must_use]
            pub fn generate() -> Self {
                Self::from_bytes(random())
            }

            /// The key with these bytes.
            #[must_use]
            pub fn from_bytes(bytes: [u8; LENGTH]) -> Self {
                Self(SecretKey::from_bytes(bytes))
            }

            /// Its public half.
            #[must_use]
            pub fn public(&self) -> $public {
                $public(*self.0.public_key().as_bytes())
            }

            /// The box between this key and a peer's.
            #[must_use]
            pub fn shared(&self, peer: &$public) -> SharedBox {
                SharedBox(SalsaBox::new(&PublicKey::from_bytes(peer.0), &self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(redacted)"))
            }
        }
    };
}

private_key! {
    /// A node's private key. It is made anew for each start of an agent and each connection of a client.
    NodePrivate, NodePublic
}
private_key! {
    /// The private key of a node's disco protocol.
    DiscoPrivate, DiscoPublic
}

impl NodePrivate {
    /// The same key for WireGuard.
    pub(crate) fn to_wireguard(&self) -> boringtun::x25519::StaticSecret {
        boringtun::x25519::StaticSecret::from(self.0.to_bytes())
    }
}

/// Seals and opens what two keys say to each other (NaCl box: X25519, XSalsa20, Poly1305).
pub struct SharedBox(SalsaBox);

impl SharedBox {
    /// A nonce and the box of `text`.
    #[must_use]
    pub fn seal(&self, text: &[u8]) -> Vec<u8> {
        let nonce = SalsaBox::generate_nonce(&mut crypto_box::aead::OsRng);
        let sealed = self.0.encrypt(&nonce, text).expect("the text is shorter than any limit of the cipher");
        [nonce.as_slice(), &sealed].concat()
    }

    /// What was sealed; none when it is not from the peer, or was changed.
    #[must_use]
    pub fn open(&self, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>()?;
        self.0.decrypt(nonce.into(), sealed).ok()
    }
}

impl fmt::Debug for SharedBox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedBox(redacted)")
    }
}

/// Random bytes of the operating system.
///
/// # Panics
/// When it gives none.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_round_trip() {
        let node = NodePublic::from_bytes([7; 32]);
        assert_eq!(node.to_string(), format!("nodekey:{}", "07".repeat(32)));
        assert_eq!(node.to_string().parse(), Ok(node));
        let disco = DiscoPublic::from_bytes([0xab; 32]);
        assert_eq!(disco.to_string(), format!("discokey:{}", "ab".repeat(32)));
        assert_eq!(disco.to_string().parse(), Ok(disco));
    }

    #[test]
    fn wrong_texts_are_refused() {
        for text in ["", "nodekey:", "nodekey:07", "discokey:0707", &"07".repeat(32)] {
            assert!(text.parse::<NodePublic>().is_err(), "{text}");
        }
        assert!(format!("nodekey:{}", "0g".repeat(32)).parse::<NodePublic>().is_err());
        assert!(format!("nodekey:{}", "07".repeat(33)).parse::<NodePublic>().is_err());
    }

    #[test]
    fn binary_form_has_its_prefix() {
        let key = NodePublic::from_bytes([9; 32]);
        assert_eq!(key.to_binary()[..3], [b'n', b'p', 9]);
        assert_eq!(NodePublic::from_binary(&key.to_binary()), Ok(key));
        assert!(NodePublic::from_binary(&[9; 32]).is_err());
        assert!(NodePublic::from_binary(&key.to_binary()[..33]).is_err());
    }

    #[test]
    fn box_opens_only_between_its_keys() {
        let (ann, bob, eve) = (NodePrivate::generate(), NodePrivate::generate(), NodePrivate::generate());
        let sealed = ann.shared(&bob.public()).seal(b"text");
        assert_eq!(bob.shared(&ann.public()).open(&sealed).as_deref(), Some(&b"text"[..]));
        assert_eq!(eve.shared(&ann.public()).open(&sealed), None);
        let mut changed = sealed.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(bob.shared(&ann.public()).open(&changed), None);
        assert_eq!(bob.shared(&ann.public()).open(&sealed[..NONCE + 3]), None);
        assert_eq!(bob.shared(&ann.public()).open(&[]), None);
    }

    #[test]
    fn private_keys_are_not_printed() {
        let key = NodePrivate::from_bytes([0x42; 32]);
        assert_eq!(
            format!("{key:?} {:?}", key.shared(&key.public())),
            "NodePrivate(redacted) SharedBox(redacted)"
        );
    }
}
