//! Workspaces.

use coder_domain::Timestamp;
use coder_domain::ids::{
    AgentId, OrganizationId, PresetId, TemplateId, TemplateVersionId, UserId, WorkspaceId,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::builds::WorkspaceBuild;
use crate::json::{self, NameValue, nullable};
use crate::resources::AppStatus;

string_enums! {
    /// Whether a start takes the template's active version.
    pub enum AutomaticUpdates {
        Never = "never",
        Always = "always",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workspace {
    pub id: WorkspaceId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub owner_id: UserId,
    #[serde(default)]
    pub owner_name: String,
    #[serde(default)]
    pub owner_avatar_url: String,
    pub organization_id: OrganizationId,
    #[serde(default)]
    pub organization_name: String,
    pub template_id: TemplateId,
    #[serde(default)]
    pub template_name: String,
    #[serde(default)]
    pub template_display_name: String,
    #[serde(default)]
    pub template_icon: String,
    #[serde(default)]
    pub template_allow_user_cancel_workspace_jobs: bool,
    pub template_active_version_id: TemplateVersionId,
    #[serde(default)]
    pub template_require_active_version: bool,
    #[serde(default)]
    pub template_use_classic_parameter_flow: bool,
    pub latest_build: WorkspaceBuild,
    #[serde(default)]
    pub latest_app_status: Option<AppStatus>,
    /// The latest build's version is not the template's active one.
    #[serde(default)]
    pub outdated: bool,
    pub name: String,
    /// `CRON_TZ=Zone m h * * dow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autostart_schedule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
    #[serde(default, with = "json::zero_time")]
    pub last_used_at: Option<Timestamp>,
    #[serde(default)]
    pub deleting_at: Option<Timestamp>,
    #[serde(default)]
    pub dormant_at: Option<Timestamp>,
    #[serde(default)]
    pub health: WorkspaceHealth,
    #[serde(default)]
    pub automatic_updates: AutomaticUpdates,
    #[serde(default)]
    pub allow_renames: bool,
    /// For the owner's own requests only.
    #[serde(default)]
    pub favorite: bool,
    #[serde(default)]
    pub next_start_at: Option<Timestamp>,
    /// Why something that was due by a schedule was not done; official servers do not say it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schedule_note: String,
    #[serde(default)]
    pub is_prebuild: bool,
    #[serde(default)]
    pub task_id: Option<Uuid>,
}

/// Whether a workspace's agents are well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceHealth {
    pub healthy: bool,
    #[serde(deserialize_with = "nullable")]
    pub failing_agents: Vec<AgentId>,
}

/// A page of workspaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspacesResponse {
    #[serde(deserialize_with = "nullable")]
    pub workspaces: Vec<Workspace>,
    /// All matches, not only this page's.
    pub count: i64,
}

/// Creates a workspace and starts its first build. Exactly one of template and version is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CreateWorkspaceRequest {
    #[serde(with = "json::nil_as_none")]
    pub template_id: Option<TemplateId>,
    #[serde(with = "json::nil_as_none")]
    pub template_version_id: Option<TemplateVersionId>,
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autostart_schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<i64>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub rich_parameter_values: Vec<NameValue>,
    #[serde(deserialize_with = "json::optional_enum", skip_serializing_if = "Option::is_none")]
    pub automatic_updates: Option<AutomaticUpdates>,
    #[serde(with = "json::nil_as_none")]
    pub template_version_preset_id: Option<PresetId>,
}

/// Renames a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateWorkspaceRequest {
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// Sets or (absent) clears the autostart schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateAutostartRequest {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
}

/// Sets or (`null`) clears the time to live, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateTtlRequest {
    pub ttl_ms: Option<i64>,
}

/// Moves a running workspace's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtendWorkspaceRequest {
    pub deadline: Timestamp,
}

/// Whether a start by schedule would need parameter values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResolveAutostart {
    pub parameter_mismatch: bool,
}

/// Puts a workspace to sleep, or wakes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateDormancyRequest {
    #[serde(deserialize_with = "nullable")]
    pub dormant: bool,
}

/// Chooses whether starts take the active version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateAutomaticUpdatesRequest {
    #[serde(deserialize_with = "nullable")]
    pub automatic_updates: AutomaticUpdates,
}
