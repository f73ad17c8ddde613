//! Providers of external authentication (`coder_external_auth`): the configuration of each.

mod env;
mod products;

use regex::Regex;
use url::Url;

use crate::secret::Secret;

pub use env::{Error, PREFIX, from_env};

/// One OAuth 2 provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// The id that templates use; unique.
    pub id: String,
    /// The product, for example `github`.
    pub kind: String,
    /// The OAuth client id.
    pub client_id: String,
    /// The OAuth client secret; empty for clients without one.
    pub client_secret: Secret,
    /// How users connect their account.
    pub flow: Flow,
    /// Exchanges codes and refresh tokens for access tokens.
    pub token_url: Url,
    /// Answers 200 to a valid token; none if tokens are not validated.
    pub validate_url: Option<Url>,
    /// The scopes of the tokens.
    pub scopes: Vec<String>,
    /// Matches the addresses of its repositories.
    pub regex: Option<Regex>,
    /// The name that users see.
    pub display_name: String,
    /// URL or emoji path.
    pub display_icon: String,
    /// Whether expired tokens are not refreshed.
    pub no_refresh: bool,
}

/// How users connect their account.
#[derive(Clone, Debug)]
pub enum Flow {
    /// In the browser, which returns with an authorization code.
    Browser {
        /// The authorization endpoint.
        auth_url: Url,
    },
    /// With a device code that users enter at the provider.
    Device {
        /// The device authorization endpoint.
        code_url: Url,
    },
}

impl Provider {
    /// Whether an address of a repository belongs to this provider.
    #[must_use]
    pub fn matches(&self, address: &str) -> bool {
        self.regex.as_ref().is_some_and(|regex| regex.is_match(address))
    }

    /// Whether accounts are connected with a device code.
    #[must_use]
    pub const fn is_device(&self) -> bool {
        matches!(self.flow, Flow::Device { .. })
    }
}
