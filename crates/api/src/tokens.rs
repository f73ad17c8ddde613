//! API keys: sessions, and tokens that people create for machines.

use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::json::{self, nullable};
use crate::users::LoginType;

/// The scope that allows everything its owner may do.
pub const SCOPE_ALL: &str = "coder:all";
/// The allow list entry that covers every object.
pub const ALLOW_ALL: &str = "*:*";

/// The visible fields of a key. The secret half is never stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// The public half of the token, ten characters.
    pub id: String,
    pub user_id: UserId,
    /// None when never used.
    #[serde(default, with = "json::zero_time")]
    pub last_used: Option<Timestamp>,
    pub expires_at: Timestamp,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default)]
    pub login_type: LoginType,
    /// The older single scope: `all`, `application_connect` or empty.
    #[serde(default)]
    pub scope: String,
    #[serde(default, deserialize_with = "nullable")]
    pub scopes: Vec<String>,
    #[serde(default)]
    pub token_name: String,
    #[serde(default)]
    pub lifetime_seconds: i64,
    /// Entries of the form `type:id`.
    #[serde(default, deserialize_with = "nullable")]
    pub allow_list: Vec<String>,
}

/// A key in a list that may span users.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyWithOwner {
    #[serde(flatten)]
    pub key: ApiKey,
    #[serde(default)]
    pub username: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateTokenRequest {
    /// Nanoseconds; zero for the default.
    #[serde(deserialize_with = "nullable")]
    pub lifetime: i64,
    /// The older single scope.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub scope: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Empty lets the server choose a name.
    #[serde(deserialize_with = "nullable")]
    pub token_name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub allow_list: Vec<String>,
}

impl CreateTokenRequest {
    /// A request with a lifetime; zero for the server's default.
    pub fn new(token_name: impl Into<String>, lifetime: Duration) -> Self {
        let lifetime = i64::try_from(lifetime.as_nanos()).unwrap_or(i64::MAX);
        Self { token_name: token_name.into(), lifetime, ..Self::default() }
    }
}

/// A new secret, which is sent only once: a token, a session key or a provisioner key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateKeyResponse {
    #[serde(with = "json::secret")]
    pub key: Secret,
}

/// The limits of new tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenConfig {
    /// Nanoseconds.
    pub max_token_lifetime: i64,
}

/// The scopes a token may be given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScopeCatalog {
    #[serde(default, deserialize_with = "nullable")]
    pub external: Vec<String>,
}
