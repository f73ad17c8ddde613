//! External authentication: the configured providers, the OAuth client that talks to them, and the tokens of connected accounts.

mod links;
mod oauth_client;
pub mod providers;

pub use links::{connect, is_connected, known, token};
pub use oauth_client::{DeviceCode, Error, OAuthClient, ProviderTokens, SetupError};
