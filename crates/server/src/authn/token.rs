//! Random credentials, and MACs that only their holders can compute.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coder_domain::key::{ApiToken, random_text};
use coder_domain::secret::Secret;
use ring::hmac;

/// Fills `bytes` from the system's random source.
pub fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel's random source answers on every system we run on");
}

/// A fresh API token.
#[must_use]
pub fn generate() -> ApiToken {
    ApiToken::generate(random)
}

/// A fresh random value, for one form or one OAuth redirect.
#[must_use]
pub fn nonce() -> Secret {
    Secret::new(random_text(32, random))
}

/// A MAC of `text` and its purpose under the token of `session`. Only the holder of the session can compute it.
#[must_use]
pub fn bound(session: &Secret, purpose: &str, text: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, session.expose().as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, format!("coder {purpose} {text}").as_bytes()))
}
