//! The two kinds of machine credentials: provisioner keys and API tokens. Only their hashes are ever stored.

pub mod network;
mod validity;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

pub use self::network::{AllowList, Network};
pub use self::validity::{InvalidKey, KeyValidity, Refusal, SecretVersion, validate};
use crate::secret::Secret;

/// Length of a provisioner key's secret in characters (scheduling-and-auth KEY-1).
pub const PROVISIONER_KEY_LENGTH: usize = 43;
const TOKEN_ID_LENGTH: usize = 10;
const TOKEN_SECRET_LENGTH: usize = 22;
const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// A SHA-256 digest: of a secret, or of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sha256Digest(pub [u8; 32]);

impl Sha256Digest {
    /// The digest of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes()).into())
    }

    /// Compares in constant time.
    #[must_use]
    pub fn verify(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

/// Compares two texts in time that depends only on their lengths, for the pre-shared key (wire-protocol 1.4).
#[must_use]
pub fn same_secret(left: &str, right: &str) -> bool {
    Sha256Digest::of(left).verify(&Sha256Digest::of(right))
}

/// `length` random letters and digits. `random` fills a buffer with random bytes.
///
/// Bytes above the largest multiple of 62 are discarded, so every character is equally likely.
pub fn random_text(length: usize, mut random: impl FnMut(&mut [u8])) -> String {
    let mut text = String::with_capacity(length);
    let mut bytes = [0_u8; 64];
    while text.len() < length {
        random(&mut bytes);
        let missing = length - text.len();
        let usable = bytes.iter().filter(|byte| **byte < 248).take(missing);
        text.extend(usable.map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()])));
    }
    text
}

/// Generates the secret of a provisioner key.
pub fn new_provisioner_key(random: impl FnMut(&mut [u8])) -> Secret {
    Secret::new(random_text(PROVISIONER_KEY_LENGTH, random))
}

/// Whether a text has the length of a provisioner key; nothing else is checked before the look-up (KEY-8).
#[must_use]
pub const fn is_provisioner_key(text: &str) -> bool {
    text.len() == PROVISIONER_KEY_LENGTH
}

/// An API token `<id>-<secret>` (scheduling-and-auth TOK-1).
#[derive(Clone, Debug)]
pub struct ApiToken {
    /// The public half, ten characters; primary key of the stored row.
    pub id: String,
    /// The secret half, twenty-two characters.
    pub secret: Secret,
}

impl ApiToken {
    pub fn generate(mut random: impl FnMut(&mut [u8])) -> Self {
        let id = random_text(TOKEN_ID_LENGTH, &mut random);
        let secret = Secret::new(random_text(TOKEN_SECRET_LENGTH, random));
        Self { id, secret }
    }

    /// Parses a token; none if the text has another form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_once('-')?;
        let plain =
            |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_alphanumeric());
        (plain(id, TOKEN_ID_LENGTH) && plain(secret, TOKEN_SECRET_LENGTH))
            .then(|| Self { id: id.to_owned(), secret: Secret::new(secret) })
    }

    /// The text that the user gets, once.
    #[must_use]
    pub fn reveal(&self) -> Secret {
        Secret::new(format!("{}-{}", self.id, self.secret.expose()))
    }

    /// The hash that is stored.
    #[must_use]
    pub fn hashed(&self) -> Sha256Digest {
        Sha256Digest::of(self.secret.expose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter() -> impl FnMut(&mut [u8]) {
        let mut next = 0_u8;
        move |bytes| {
            for byte in bytes {
                *byte = next;
                next = next.wrapping_add(7);
            }
        }
    }

    #[test]
    fn key_1_forty_three_letters_and_digits() {
        let key = new_provisioner_key(counter());
        assert!(is_provisioner_key(key.expose()));
        assert!(!is_provisioner_key(&key.expose()[1..]) && !is_provisioner_key("a-token"));
        assert!(key.expose().bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }

    #[test]
    fn tok_1_round_trip_and_shapes() {
        let token = ApiToken::generate(counter());
        let text = token.reveal();
        let again = ApiToken::parse(text.expose()).expect("a generated token");
        assert_eq!(again.id, token.id);
        assert!(again.hashed().verify(&token.hashed()));
        for bad in ["", "-", "short-short", &format!("{}x", text.expose()), &text.expose().replace('-', "_")]
        {
            assert!(ApiToken::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let token = ApiToken::generate(counter());
        assert!(!format!("{token:?}").contains(token.secret.expose()));
    }

    #[test]
    fn hash_is_sha_256() {
        let text: String = Sha256Digest::of("abc").0.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
