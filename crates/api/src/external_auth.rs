//! External authentication: the providers of a server, and the connected accounts of a user.

use coder_domain::Timestamp;
use serde::{Deserialize, Serialize};

/// The providers, and the caller's accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuths {
    #[serde(deserialize_with = "crate::json::nullable")]
    pub providers: Vec<ExternalAuthProvider>,
    #[serde(deserialize_with = "crate::json::nullable")]
    pub links: Vec<ExternalAuthLink>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuthProvider {
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether accounts are connected with a device code.
    pub device: bool,
    pub display_name: String,
    pub display_icon: String,
    pub allow_refresh: bool,
    pub allow_validate: bool,
}

/// An account that the caller has connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAuthLink {
    pub provider_id: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub has_refresh_token: bool,
    /// Absent when the token does not end.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    pub authenticated: bool,
    /// Why it can no longer be used.
    #[serde(default)]
    pub validate_error: String,
}

/// One provider, and whether the caller's account there works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuth {
    pub authenticated: bool,
    pub device: bool,
    pub display_name: String,
    /// Always null: whose account it is stays with the provider.
    pub user: Option<serde_json::Value>,
    pub app_installable: bool,
    /// Always empty.
    #[serde(deserialize_with = "crate::json::nullable")]
    pub installations: Vec<serde_json::Value>,
    pub app_install_url: String,
}

/// The result of deleting a connected account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuthDeleted {
    /// Whether the provider was notified. This server never does so.
    pub token_revoked: bool,
}

/// A code that people type in at the provider's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuthDevice {
    pub device_code: String,
    pub user_code: String,
    pub verification_uri: String,
    /// Seconds.
    pub expires_in: i64,
    /// Seconds.
    pub interval: i64,
}

/// Asks whether a code was typed in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExternalAuthDeviceExchange {
    pub device_code: String,
}
