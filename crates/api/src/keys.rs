//! Provisioner keys: the credentials of external daemons.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::secret::Secret;
use coder_domain::tags::TagSet;
use serde::{Deserialize, Serialize};

use crate::daemons::ProvisionerDaemon;
use crate::json::nullable;
pub use crate::tokens::CreateKeyResponse;

/// A provisioner key, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerKey {
    pub id: KeyId,
    pub created_at: Timestamp,
    /// The one place where this is not called `organization_id`.
    pub organization: OrganizationId,
    pub name: String,
    #[serde(default, deserialize_with = "nullable")]
    pub tags: TagSet,
    /// Not official: the first instant at which it is no longer valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Not official: until when the secret before the last rotation is valid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_valid_until: Option<Timestamp>,
    /// Not official: the networks from which it may be used; empty allows all.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub allow_addresses: Vec<String>,
    /// Not official: when a daemon last used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
    /// Not official: the address of that use.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub last_used_address: String,
}

/// Creates a provisioner key; the response is a [`CreateKeyResponse`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateProvisionerKeyRequest {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub tags: BTreeMap<String, String>,
    /// Not official: seconds from now until it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<i64>,
    /// Not official: the networks from which it may be used, as `10.0.0.0/8`; empty allows all.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub allow_addresses: Vec<String>,
}

/// Changes when a key expires and from where it may be used; absent fields stay. Not official.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateProvisionerKeyRequest {
    /// Seconds from now until it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<i64>,
    /// It no longer expires.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub never_expires: bool,
    /// The networks from which it may be used, as `10.0.0.0/8`; an empty list allows all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_addresses: Option<Vec<String>>,
}

/// Gives a key a new secret. Not official.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RotateProvisionerKeyRequest {
    /// How long the old secret stays valid, in seconds.
    pub overlap_seconds: i64,
}

/// A rotated key. Not official.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RotateProvisionerKeyResponse {
    /// The new secret, which is sent only once.
    #[serde(with = "crate::json::secret")]
    pub key: Secret,
    /// Until when the old secret is valid.
    pub previous_valid_until: Timestamp,
}

/// A key and the daemons that were seen with it in the last three minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerKeyDaemons {
    pub key: ProvisionerKey,
    #[serde(default, deserialize_with = "nullable")]
    pub daemons: Vec<ProvisionerDaemon>,
}
