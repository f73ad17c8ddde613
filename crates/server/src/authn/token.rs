//! Making credentials.

use coder_domain::key::{ApiToken, random_text};
use coder_domain::secret::Secret;

/// Fills `bytes` from the system's random source.
pub fn random(bytes: &mut [u8]) {
    getrandom::fill(bytes).expect("the kernel's random source answers on every system we run on");
}

/// A fresh API token.
#[must_use]
pub fn generate() -> ApiToken {
    ApiToken::generate(random)
}

/// A fresh value for the CSRF cookie.
#[must_use]
pub fn csrf() -> Secret {
    Secret::new(random_text(32, random))
}
