//! Resume tokens: a user's connection to the coordinator keeps its peer id when it reconnects with one (agent 3.7).
//!
//! A token is a JWT with HS512. It names its user besides the peer id, so that a stolen one is useless to other users.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use jiff::SignedDuration;
use ring::hmac;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How long a token is valid; clients get a new one at half of it.
pub(super) const LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Longer texts are not read.
const LONGEST: usize = 1024;
/// Names the only key there is. Tokens without a key name are ignored, as the official server does.
const KEY_ID: &str = "1";

/// Makes and reads tokens.
pub struct ResumeTokens(hmac::Key);

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Claims {
    /// Peer id.
    sub: Uuid,
    exp: i64,
    user_id: UserId,
}

/// A token that is malformed, expired, of another user, or not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the resume token is malformed, has expired, or belongs to another user")]
pub struct InvalidToken;

impl ResumeTokens {
    pub(super) fn new(key: &[u8; 64]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA512, key))
    }

    /// A token for a peer of a user.
    pub(super) fn issue(&self, user: UserId, peer: Uuid, now: Timestamp) -> String {
        let header = part(&Header { alg: "HS512".to_owned(), kid: Some(KEY_ID.to_owned()) });
        let claims = part(&Claims { sub: peer, exp: (now + LIFETIME).as_second(), user_id: user });
        let signed = format!("{header}.{claims}");
        let signature = hmac::sign(&self.0, signed.as_bytes());
        format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
    }

    /// The peer id of a token; none for one that names no key.
    ///
    /// # Errors
    /// [`InvalidToken`].
    pub fn read(&self, token: &str, user: UserId, now: Timestamp) -> Result<Option<Uuid>, InvalidToken> {
        if token.len() > LONGEST {
            return Err(InvalidToken);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(InvalidToken)?;
        let (header, claims) = signed.split_once('.').ok_or(InvalidToken)?;
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|_| InvalidToken);
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| InvalidToken)?;
        match header.kid.as_deref() {
            None | Some("") => return Ok(None),
            Some(KEY_ID) if header.alg == "HS512" => {}
            Some(_) => return Err(InvalidToken),
        }
        hmac::verify(&self.0, signed.as_bytes(), &decode(signature)?).map_err(|_| InvalidToken)?;
        let claims: Claims = serde_json::from_slice(&decode(claims)?).map_err(|_| InvalidToken)?;
        if claims.user_id != user || claims.exp <= now.as_second() {
            return Err(InvalidToken);
        }
        Ok(Some(claims.sub))
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
    fn token_is_valid_for_its_user_until_it_expires() {
        let (tokens, user, peer) = (ResumeTokens::new(&[7; 64]), UserId::random(), Uuid::new_v4());
        let now = Timestamp::constant(1_780_000_000, 0);
        let token = tokens.issue(user, peer, now);
        assert_eq!(tokens.read(&token, user, now), Ok(Some(peer)));
        assert_eq!(tokens.read(&token, UserId::random(), now), Err(InvalidToken));
        assert_eq!(tokens.read(&token, user, now + LIFETIME), Err(InvalidToken));
        assert_eq!(ResumeTokens::new(&[8; 64]).read(&token, user, now), Err(InvalidToken));
    }

    #[test]
    fn forged_and_malformed_tokens_are_refused() {
        let (tokens, user, peer) = (ResumeTokens::new(&[7; 64]), UserId::random(), Uuid::new_v4());
        let now = Timestamp::constant(1_780_000_000, 0);
        let token = tokens.issue(user, peer, now);
        let parts: Vec<_> = token.split('.').collect();
        let other = part(&Claims { sub: Uuid::new_v4(), exp: i64::MAX, user_id: user });
        let unsigned = part(&Header { alg: "none".to_owned(), kid: Some(KEY_ID.to_owned()) });
        for bad in [
            String::new(),
            "a.b".to_owned(),
            "..".to_owned(),
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{unsigned}.{}.", parts[1]),
            format!("{}.{}.", parts[0], parts[1]),
            "x".repeat(LONGEST + 1),
        ] {
            assert_eq!(tokens.read(&bad, user, now), Err(InvalidToken), "{bad}");
        }
        let nameless = part(&Header { alg: "HS512".to_owned(), kid: None });
        assert_eq!(tokens.read(&format!("{nameless}.{}.x", parts[1]), user, now), Ok(None));
    }
}
