//! The audit log: who did what to what.

use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::json::nullable;
use crate::organizations::MinimalOrganization;
use crate::users::User;

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditLog {
    pub id: Uuid,
    pub request_id: Uuid,
    pub time: Timestamp,
    #[serde(default)]
    pub ip: String,
    #[serde(default)]
    pub user_agent: String,
    pub resource_type: String,
    pub resource_id: Uuid,
    #[serde(default)]
    pub resource_target: String,
    #[serde(default)]
    pub resource_icon: String,
    pub action: String,
    /// By field: `old`, `new`, and whether it is secret.
    #[serde(default)]
    pub diff: serde_json::Value,
    pub status_code: i64,
    #[serde(default)]
    pub additional_fields: serde_json::Value,
    /// A sentence for people, with `{user}` and `{target}` to be filled in.
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub resource_link: String,
    #[serde(default)]
    pub is_deleted: bool,
    /// The zero id for what belongs to the whole site.
    #[serde(default)]
    pub organization_id: OrganizationId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub organization: Option<MinimalOrganization>,
    /// None when the account is unknown.
    #[serde(default)]
    pub user: Option<User>,
}

/// A page of entries, newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditLogResponse {
    #[serde(deserialize_with = "nullable")]
    pub audit_logs: Vec<AuditLog>,
    /// All matches, not only this page's.
    pub count: i64,
}
