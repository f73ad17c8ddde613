//! Providers of accounts elsewhere that templates ask for (`coder_external_auth`): what is configured about each.

mod defaults;
mod read;

use regex::Regex;
use url::Url;

use crate::secret::Secret;

pub use read::{Error, PREFIX, from_env};

/// One OAuth 2 provider.
#[derive(Clone, Debug)]
pub struct Provider {
    /// What templates call it; unique.
    pub id: String,
    /// Which product it is, for example `github`.
    pub kind: String,
    /// Who we are to it.
    pub client_id: String,
    /// Our password there; empty for clients without one.
    pub client_secret: Secret,
    /// How people connect their account.
    pub flow: Flow,
    /// Where codes and refresh tokens become access tokens.
    pub token_url: Url,
    /// What answers 200 to a token that works; none when that is not asked.
    pub validate_url: Option<Url>,
    /// What we ask for.
    pub scopes: Vec<String>,
    /// Which addresses of repositories belong to it.
    pub regex: Option<Regex>,
    /// For people.
    pub display_name: String,
    /// URL or emoji path.
    pub display_icon: String,
    /// Whether an expired token stays expired.
    pub no_refresh: bool,
}

/// How people connect their account.
#[derive(Clone, Debug)]
pub enum Flow {
    /// In the browser, which comes back with a code.
    Browser {
        /// Where people agree.
        auth_url: Url,
    },
    /// With a code that people type in at the provider's.
    Device {
        /// Where we get such codes.
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
