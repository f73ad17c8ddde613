//! Provisioner keys: the scoped credentials of external daemons.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::{KeyId, OrganizationId};
use coder_domain::tags::TagSet;
use serde::{Deserialize, Serialize};

use crate::daemons::ProvisionerDaemon;
use crate::json::nullable;
pub use crate::tokens::NewKey;

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
}

/// Makes a provisioner key; the answer is a [`NewKey`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateProvisionerKeyRequest {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable")]
    pub tags: BTreeMap<String, String>,
}

/// A key and the daemons that were seen with it in the last three minutes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerKeyDaemons {
    pub key: ProvisionerKey,
    #[serde(default, deserialize_with = "nullable")]
    pub daemons: Vec<ProvisionerDaemon>,
}
