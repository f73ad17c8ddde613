//! What a build may get of its owner's credentials. A template author reads whatever a build gets, so a build must not
//! give its initiator rights that the initiator does not have.

use coder_domain::Timestamp;
use coder_store::tokens::ApiKey;
use serde::{Deserialize, Serialize};

/// Decided when the build is requested, and kept in the input of its job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerCredentials {
    /// All of them: a signed-in person requested the build.
    #[default]
    All,
    /// All of them, but the session token has the limits of the token that requested the build.
    Limited(TokenLimits),
    /// None: the initiator is another person, who may not act as the owner.
    Withheld,
}

/// The limits that a session token inherits (scheduling-and-auth TOK-10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenLimits {
    /// The id of the token that the session token ends with.
    pub parent_id: Option<String>,
    /// When the session token ends at the latest.
    pub not_after: Option<Timestamp>,
    /// What it may do.
    pub scopes: Vec<String>,
    /// With what.
    pub allow_list: Vec<String>,
}

impl OwnerCredentials {
    /// For a build that is requested with `key`, whose holder may act as the owner.
    #[must_use]
    pub fn requested_with(key: &ApiKey) -> Self {
        if key.is_sign_in() {
            return Self::All;
        }
        let (scopes, allow_list) = (key.scopes.clone(), key.allow_list.clone());
        // A workspace's own session token is replaced by the new one, so it cannot be the parent.
        let (parent_id, not_after) = if key.belongs_to_workspace() {
            (key.parent_id.clone(), key.not_after)
        } else {
            (Some(key.id.clone()), Some(key.not_after.unwrap_or(key.expires_at)))
        };
        Self::Limited(TokenLimits { parent_id, not_after, scopes, allow_list })
    }
}
