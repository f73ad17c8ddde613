//! Tokens that this deployment signs and reads itself: JWTs with HS512 and the header `kid`.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Names the only key there is.
const KEY_ID: &str = "1";
/// Bytes of a key.
pub const KEY_BYTES: usize = 64;

/// Signs and reads tokens of one kind.
pub struct TokenKey(hmac::Key);

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

/// Why a token is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// It names no key.
    #[error("the token names no key")]
    NoKey,
    /// It is malformed, or was not signed here.
    #[error("the token is malformed, or was not signed by this deployment")]
    Forged,
}

impl TokenKey {
    #[must_use]
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA512, key))
    }

    /// A token with these claims.
    #[must_use]
    pub fn sign(&self, claims: &impl Serialize) -> String {
        let header = part(&Header { alg: "HS512".to_owned(), kid: Some(KEY_ID.to_owned()) });
        let signed = format!("{header}.{}", part(claims));
        let signature = hmac::sign(&self.0, signed.as_bytes());
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// The claims of a token of at most `longest` bytes. Whether it has expired is the caller's to decide.
    ///
    /// # Errors
    /// [`InvalidToken`].
    pub fn read<C: DeserializeOwned>(&self, token: &str, longest: usize) -> Result<C, InvalidToken> {
        if token.len() > longest {
            return Err(InvalidToken::Forged);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(InvalidToken::Forged)?;
        let (header, claims) = signed.split_once('.').ok_or(InvalidToken::Forged)?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidToken::Forged);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| InvalidToken::Forged)?;
        match header.kid.as_deref() {
            None | Some("") => return Err(InvalidToken::NoKey),
            Some(KEY_ID) if header.alg == "HS512" => {}
            Some(_) => return Err(InvalidToken::Forged),
        }
        hmac::verify(&self.0, signed.as_bytes(), &decode(signature)?).map_err(|_| InvalidToken::Forged)?;
        serde_json::from_slice(&decode(claims)?).map_err(|_| InvalidToken::Forged)
    }
}

fn part(value: &impl Serialize) -> String {
    let text = serde_json::to_vec(value).expect("it has only texts and numbers");
    BASE64_URL_SAFE_NO_PAD.encode(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_the_same_key_are_read() {
        let (key, other) = (TokenKey::new(&[7; KEY_BYTES]), TokenKey::new(&[8; KEY_BYTES]));
        let token = key.sign(&"claims");
        assert_eq!(key.read::<String>(&token, 1024), Ok("claims".to_owned()));
        assert_eq!(key.read::<String>(&token, token.len()), Ok("claims".to_owned()));
        assert_eq!(other.read::<String>(&token, 1024), Err(InvalidToken::Forged));
        assert_eq!(key.read::<String>(&token, token.len() - 1), Err(InvalidToken::Forged));
        assert_eq!(key.read::<u32>(&token, 1024), Err(InvalidToken::Forged));
        for bad in ["", ".", "..", "a.b.c", &token[1..], &token[..token.len() - 1]] {
            assert_eq!(key.read::<String>(bad, 1024), Err(InvalidToken::Forged), "{bad}");
        }
    }

    #[test]
    fn another_algorithm_and_no_key_are_refused() {
        let key = TokenKey::new(&[7; KEY_BYTES]);
        let with = |header: &str| {
            let signed = format!("{}.{}", BASE64_URL_SAFE_NO_PAD.encode(header), part(&"claims"));
            let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key.0, signed.as_bytes()));
            key.read::<String>(&format!("{signed}.{signature}"), 1024)
        };
        assert_eq!(with(r#"{"alg":"HS512","kid":"1"}"#), Ok("claims".to_owned()));
        assert_eq!(with(r#"{"alg":"none","kid":"1"}"#), Err(InvalidToken::Forged));
        assert_eq!(with(r#"{"alg":"HS512","kid":"2"}"#), Err(InvalidToken::Forged));
        assert_eq!(with(r#"{"alg":"HS512"}"#), Err(InvalidToken::NoKey));
    }
}
