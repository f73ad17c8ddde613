//! Encrypts the key that a sign-in carries from the server's host to the host of an app: a JWE with `A256GCMKW` and `A256GCM`,
//! valid for a minute (agent 6.2).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coder_domain::Timestamp;
use coder_domain::secret::Secret;
use jiff::SignedDuration;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

use crate::authn::token::random;

/// Bytes of keys, and of the tag of AES-GCM.
pub(super) const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
/// Before and after the current time, since servers of a deployment have clocks of their own.
const CLOCK_TOLERANCE: SignedDuration = SignedDuration::from_mins(1);
/// Longer texts are not read.
const MAX_BYTES: usize = 4 << 10;
const ISSUER: &str = "coderd";
const AUDIENCE: &str = "wsproxy";
const KEY_ID: &str = "1";

/// Encrypts and decrypts.
pub(super) struct KeySealer(LessSafeKey);

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    enc: String,
    kid: String,
    /// Nonce and tag of the encrypted content key.
    iv: String,
    tag: String,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    api_key: String,
    iss: String,
    aud: Vec<String>,
    exp: i64,
    nbf: i64,
}

/// The text is malformed, expired, or was not made by this deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the encrypted key is malformed, has expired, or was not made by this deployment")]
pub(super) struct InvalidSeal;

impl KeySealer {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(aes(key))
    }

    /// Encrypts a key.
    pub(super) fn seal(&self, key: &Secret, now: Timestamp) -> Secret {
        let mut content_key = [0; KEY_BYTES];
        random(&mut content_key);
        let mut wrapped = content_key.to_vec();
        let (wrap_nonce, wrap_tag) = encrypt(&self.0, &[], &mut wrapped);
        let header = Header {
            alg: "A256GCMKW".to_owned(),
            enc: "A256GCM".to_owned(),
            kid: KEY_ID.to_owned(),
            iv: encode(&wrap_nonce),
            tag: encode(&wrap_tag),
        };
        let header = encode(&serde_json::to_vec(&header).expect("it has only texts"));
        let claims = Claims {
            api_key: key.expose().to_owned(),
            iss: ISSUER.to_owned(),
            aud: vec![AUDIENCE.to_owned()],
            exp: (now + CLOCK_TOLERANCE).as_second(),
            nbf: (now - CLOCK_TOLERANCE).as_second(),
        };
        let mut content = serde_json::to_vec(&claims).expect("it has only texts and numbers");
        let (nonce, tag) = encrypt(&aes(&content_key), header.as_bytes(), &mut content);
        let parts = [&*wrapped, &nonce, &content, &tag].map(encode).join(".");
        Secret::new(format!("{header}.{parts}"))
    }

    /// Decrypts one that is valid now.
    pub(super) fn open(&self, text: &str, now: Timestamp) -> Result<Secret, InvalidSeal> {
        if text.len() > MAX_BYTES {
            return Err(InvalidSeal);
        }
        let parts: Vec<_> = text.split('.').collect();
        let [header, wrapped, nonce, content, tag] = parts[..] else { return Err(InvalidSeal) };
        let read: Header = serde_json::from_slice(&decode(header)?).map_err(|_| InvalidSeal)?;
        if (&*read.alg, &*read.enc, &*read.kid) != ("A256GCMKW", "A256GCM", KEY_ID) {
            return Err(InvalidSeal);
        }
        let content_key = decrypt(&self.0, &decode(&read.iv)?, &[], decode(wrapped)?, &decode(&read.tag)?)?;
        let content_key: [u8; KEY_BYTES] = content_key.try_into().map_err(|_| InvalidSeal)?;
        let claims =
            decrypt(&aes(&content_key), &decode(nonce)?, header.as_bytes(), decode(content)?, &decode(tag)?)?;
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| InvalidSeal)?;
        let now = now.as_second();
        let is_ours = claims.iss == ISSUER && claims.aud.iter().any(|one| one == AUDIENCE);
        if !is_ours || claims.exp <= now || claims.nbf > now {
            return Err(InvalidSeal);
        }
        Ok(Secret::new(claims.api_key))
    }
}

fn aes(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("the length is that of AES-256"))
}

/// Encrypts in place under a fresh nonce, which is returned with the tag.
fn encrypt(key: &LessSafeKey, associated: &[u8], text: &mut [u8]) -> ([u8; NONCE_LEN], [u8; TAG_BYTES]) {
    let mut nonce = [0; NONCE_LEN];
    random(&mut nonce);
    let sealed =
        key.seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), Aad::from(associated), text);
    let tag = sealed.expect("the text is much shorter than AES-GCM allows");
    let mut bytes = [0; TAG_BYTES];
    bytes.copy_from_slice(tag.as_ref());
    (nonce, bytes)
}

fn decrypt(
    key: &LessSafeKey,
    nonce: &[u8],
    associated: &[u8],
    mut text: Vec<u8>,
    tag: &[u8],
) -> Result<Vec<u8>, InvalidSeal> {
    if tag.len() != TAG_BYTES {
        return Err(InvalidSeal);
    }
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| InvalidSeal)?;
    text.extend_from_slice(tag);
    let plain = key.open_in_place(nonce, Aad::from(associated), &mut text).map_err(|_| InvalidSeal)?;
    Ok(plain.to_vec())
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Result<Vec<u8>, InvalidSeal> {
    BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidSeal)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_780_000_000, 0);

    #[test]
    fn key_is_readable_for_a_minute_by_its_deployment() {
        let sealer = KeySealer::new(&[7; KEY_BYTES]);
        let sealed = sealer.seal(&Secret::new("id-secret"), NOW);
        assert!(!sealed.expose().contains("secret"));
        let open =
            |sealer: &KeySealer, now| sealer.open(sealed.expose(), now).map(|key| key.expose().to_owned());
        assert_eq!(open(&sealer, NOW), Ok("id-secret".to_owned()));
        assert_eq!(open(&sealer, NOW - CLOCK_TOLERANCE), Ok("id-secret".to_owned()));
        assert_eq!(open(&sealer, NOW + CLOCK_TOLERANCE), Err(InvalidSeal));
        assert_eq!(open(&sealer, NOW - CLOCK_TOLERANCE * 2), Err(InvalidSeal));
        assert_eq!(open(&KeySealer::new(&[8; KEY_BYTES]), NOW), Err(InvalidSeal));
    }

    #[test]
    fn changed_and_malformed_texts_are_refused() {
        let sealer = KeySealer::new(&[7; KEY_BYTES]);
        let sealed = sealer.seal(&Secret::new("id-secret"), NOW);
        let text = sealed.expose();
        for at in (0..text.len()).step_by(7) {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            // The last character of a part may hold bits that mean nothing; decoding refuses those.
            let changed = String::from_utf8(bytes).unwrap();
            assert!(sealer.open(&changed, NOW).is_err(), "{at}");
        }
        for bad in ["", "....", "a.b.c.d.e", &"x".repeat(10_000), &format!("{text}.")] {
            assert!(sealer.open(bad, NOW).is_err(), "{bad}");
        }
    }
}
