//! Templates.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::ids::{OrganizationId, TemplateId, TemplateVersionId, UserId};
use serde::{Deserialize, Serialize};

use crate::daemons::ProvisionerType;
use crate::json::{self, nullable};

string_enums! {
    /// How widely a port may be shared, and an app with it.
    pub enum SharingLevel {
        Owner = "owner",
        Authenticated = "authenticated",
        Organization = "organization",
        Public = "public",
    }

    /// What happens to cross-origin requests to apps.
    pub enum CorsBehavior {
        Simple = "simple",
        Passthru = "passthru",
    }
}

/// A template. Every field is always present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    pub id: TemplateId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub organization_id: OrganizationId,
    #[serde(default)]
    pub organization_name: String,
    #[serde(default)]
    pub organization_display_name: String,
    #[serde(default)]
    pub organization_icon: String,
    pub name: String,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub provisioner: ProvisionerType,
    pub active_version_id: TemplateVersionId,
    /// −1 while unknown.
    #[serde(default)]
    pub active_user_count: i64,
    #[serde(default)]
    pub build_time_stats: BuildTimeStats,
    #[serde(default)]
    pub description: String,
    #[serde(default)]
    pub deprecated: bool,
    #[serde(default)]
    pub deprecation_message: String,
    #[serde(default)]
    pub icon: String,
    #[serde(default)]
    pub default_ttl_ms: i64,
    #[serde(default)]
    pub activity_bump_ms: i64,
    #[serde(default)]
    pub autostop_requirement: AutostopRequirement,
    #[serde(default)]
    pub autostart_requirement: AutostartRequirement,
    #[serde(default)]
    pub created_by_id: UserId,
    #[serde(default)]
    pub created_by_name: String,
    #[serde(default)]
    pub allow_user_autostart: bool,
    #[serde(default)]
    pub allow_user_autostop: bool,
    #[serde(default)]
    pub allow_user_cancel_workspace_jobs: bool,
    #[serde(default)]
    pub failure_ttl_ms: i64,
    #[serde(default)]
    pub time_til_dormant_ms: i64,
    #[serde(default)]
    pub time_til_dormant_autodelete_ms: i64,
    #[serde(default)]
    pub require_active_version: bool,
    #[serde(default)]
    pub max_port_share_level: SharingLevel,
    #[serde(default)]
    pub cors_behavior: CorsBehavior,
    #[serde(default)]
    pub use_classic_parameter_flow: bool,
}

/// How long builds take, in milliseconds, per transition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuildTimeStats {
    pub delete: TransitionStats,
    pub start: TransitionStats,
    pub stop: TransitionStats,
}

/// Percentiles in milliseconds, `null` while unknown. The keys are capital letters on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TransitionStats {
    #[serde(rename = "P50")]
    pub p50: Option<i64>,
    #[serde(rename = "P95")]
    pub p95: Option<i64>,
}

/// On which days a workspace must stop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AutostopRequirement {
    /// Lower-case English weekdays.
    #[serde(deserialize_with = "nullable")]
    pub days_of_week: Vec<String>,
    /// Every how many weeks.
    #[serde(deserialize_with = "nullable")]
    pub weeks: i64,
}

/// On which days a workspace may start by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AutostartRequirement {
    /// Lower-case English weekdays.
    #[serde(deserialize_with = "nullable")]
    pub days_of_week: Vec<String>,
}

/// The words of weekday lists.
pub const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// Creates a template from a version. Some names differ from those that are read back (http-api 6.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateTemplateRequest {
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub description: String,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub icon: String,
    /// Required; the server refuses a request without it.
    #[serde(rename = "template_version_id", with = "json::nil_as_none")]
    pub version_id: Option<TemplateVersionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_bump_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop_requirement: Option<AutostopRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart_requirement: Option<AutostartRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_cancel_workspace_jobs: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostart: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_user_autostop: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dormant_ttl_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_ttl_ms: Option<i64>,
    #[serde(deserialize_with = "nullable")]
    pub disable_everyone_group_access: bool,
    #[serde(deserialize_with = "nullable")]
    pub require_active_version: bool,
    #[serde(deserialize_with = "json::optional_enum")]
    pub max_port_share_level: Option<SharingLevel>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template_use_classic_parameter_flow: Option<bool>,
    #[serde(deserialize_with = "json::optional_enum")]
    pub cors_behavior: Option<CorsBehavior>,
}

/// Changes a template. `None` keeps; plain values are set as given, absent meaning zero or false (http-api 6.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateTemplateRequest {
    /// Empty keeps the name.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icon: Option<String>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub default_ttl_ms: i64,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub activity_bump_ms: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostop_requirement: Option<AutostopRequirement>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart_requirement: Option<AutostartRequirement>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub allow_user_autostart: bool,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub allow_user_autostop: bool,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub allow_user_cancel_workspace_jobs: bool,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub failure_ttl_ms: i64,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub time_til_dormant_ms: i64,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub time_til_dormant_autodelete_ms: i64,
    #[serde(deserialize_with = "nullable")]
    pub update_workspace_last_used_at: bool,
    #[serde(deserialize_with = "nullable")]
    pub update_workspace_dormant_at: bool,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub require_active_version: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation_message: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub disable_everyone_group_access: bool,
    #[serde(deserialize_with = "json::optional_enum", skip_serializing_if = "Option::is_none")]
    pub max_port_share_level: Option<SharingLevel>,
    #[serde(deserialize_with = "json::optional_enum", skip_serializing_if = "Option::is_none")]
    pub cors_behavior: Option<CorsBehavior>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_classic_parameter_flow: Option<bool>,
}

string_enums! {
    /// What an entry of a template's access list may do; the empty word removes the entry.
    pub enum TemplateRole {
        Removed = "",
        Use = "use",
        Admin = "admin",
    }
}

/// Who may use a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateAcl {
    #[serde(deserialize_with = "nullable")]
    pub users: Vec<serde_json::Value>,
    /// Officially in the singular.
    #[serde(rename = "group", deserialize_with = "nullable")]
    pub groups: Vec<TemplateGroup>,
}

/// A group in a template's access list. The group of all members of an organization has the organization's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateGroup {
    pub id: OrganizationId,
    pub name: String,
    pub display_name: String,
    pub organization_id: OrganizationId,
    /// Not listed: the organization's members are.
    #[serde(deserialize_with = "nullable")]
    pub members: Vec<serde_json::Value>,
    pub total_member_count: i64,
    pub avatar_url: String,
    pub quota_allowance: i64,
    pub source: String,
    pub organization_name: String,
    pub organization_display_name: String,
    pub role: TemplateRole,
}

/// Changes a template's access list. Entries that are not named stay the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateTemplateAclRequest {
    /// By user id.
    #[serde(deserialize_with = "nullable")]
    pub user_perms: BTreeMap<String, TemplateRole>,
    /// By group id.
    #[serde(deserialize_with = "nullable")]
    pub group_perms: BTreeMap<String, TemplateRole>,
}

/// Chooses the version that new builds use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateActiveVersionRequest {
    #[serde(with = "json::nil_as_none")]
    pub id: Option<TemplateVersionId>,
}

/// Archives unused versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ArchiveVersionsRequest {
    /// False takes only failed versions.
    #[serde(deserialize_with = "nullable")]
    pub all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveVersionsResponse {
    pub template_id: TemplateId,
    #[serde(default, deserialize_with = "nullable")]
    pub archived_ids: Vec<TemplateVersionId>,
}

/// A template that comes with the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplateExample {
    pub id: String,
    pub url: String,
    pub name: String,
    pub description: String,
    pub icon: String,
    #[serde(deserialize_with = "nullable")]
    pub tags: Vec<String>,
    pub markdown: String,
}
