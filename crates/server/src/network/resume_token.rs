//! Resume tokens: a user's connection to the coordinator keeps its peer id when it reconnects with one (agent 3.7).
//!
//! A token names its user besides the peer id, so that a stolen one is useless to other users.

use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::authn::signed_token::{self, KEY_BYTES, TokenKey};

/// How long a token is valid; clients get a new one at half of it.
pub(super) const TOKEN_LIFETIME: SignedDuration = SignedDuration::from_hours(24);
/// Longer texts are not read.
const MAX_BYTES: usize = 1024;

/// Makes and reads tokens.
pub struct ResumeTokens(TokenKey);

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
pub struct InvalidResumeToken;

impl ResumeTokens {
    pub(super) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(TokenKey::new(key))
    }

    /// A token for a peer of a user.
    pub(super) fn issue(&self, user: UserId, peer: Uuid, now: Timestamp) -> String {
        self.0.sign(&Claims { sub: peer, exp: (now + TOKEN_LIFETIME).as_second(), user_id: user })
    }

    /// The peer id of a token; none for one that names no key, which the official server ignores, too.
    ///
    /// # Errors
    /// [`InvalidResumeToken`].
    pub fn read(
        &self,
        token: &str,
        user: UserId,
        now: Timestamp,
    ) -> Result<Option<Uuid>, InvalidResumeToken> {
        let claims: Claims = match self.0.read(token, MAX_BYTES) {
            Ok(claims) => claims,
            Err(signed_token::InvalidToken::NoKey) => return Ok(None),
            Err(signed_token::InvalidToken::Forged) => return Err(InvalidResumeToken),
        };
        if claims.user_id != user || claims.exp <= now.as_second() {
            return Err(InvalidResumeToken);
        }
        Ok(Some(claims.sub))
    }
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
        assert_eq!(tokens.read(&token, UserId::random(), now), Err(InvalidResumeToken));
        assert_eq!(tokens.read(&token, user, now + TOKEN_LIFETIME), Err(InvalidResumeToken));
        assert_eq!(ResumeTokens::new(&[8; 64]).read(&token, user, now), Err(InvalidResumeToken));
    }

    #[test]
    fn forged_and_nameless_tokens_are_refused() {
        let (tokens, user, peer) = (ResumeTokens::new(&[7; 64]), UserId::random(), Uuid::new_v4());
        let now = Timestamp::constant(1_780_000_000, 0);
        let token = tokens.issue(user, peer, now);
        let stranger = ResumeTokens::new(&[8; 64]).issue(user, Uuid::new_v4(), now);
        let (parts, others): (Vec<_>, Vec<_>) = (token.split('.').collect(), stranger.split('.').collect());
        for bad in
            [String::new(), format!("{}.{}.{}", parts[0], others[1], parts[2]), "x".repeat(MAX_BYTES + 1)]
        {
            assert_eq!(tokens.read(&bad, user, now), Err(InvalidResumeToken), "{bad}");
        }
        // {"alg":"HS512"}
        let nameless = format!("eyJhbGciOiJIUzUxMiJ9.{}.x", parts[1]);
        assert_eq!(tokens.read(&nameless, user, now), Ok(None));
    }
}
