//! Workspace builds.

use coder_domain::Timestamp;
pub use coder_domain::build::{BuildReason, Transition, WorkspaceStatus};
use coder_domain::ids::{BuildId, PresetId, TemplateVersionId, UserId, WorkspaceId};
use serde::{Deserialize, Serialize};

use crate::agents::{AgentConnectionTiming, AgentScriptTiming};
use crate::daemons::MatchedProvisioners;
use crate::jobs::ProvisionerJob;
use crate::json::{self, Blob, NameValue, nullable};
use crate::resources::WorkspaceResource;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceBuild {
    pub id: BuildId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub workspace_id: WorkspaceId,
    #[serde(default)]
    pub workspace_name: String,
    #[serde(default)]
    pub workspace_owner_id: UserId,
    #[serde(default)]
    pub workspace_owner_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub workspace_owner_avatar_url: String,
    pub template_version_id: TemplateVersionId,
    #[serde(default)]
    pub template_version_name: String,
    /// From 1.
    pub build_number: i64,
    pub transition: Transition,
    #[serde(default)]
    pub initiator_id: UserId,
    #[serde(default)]
    pub initiator_name: String,
    pub job: ProvisionerJob,
    #[serde(default, deserialize_with = "reason")]
    pub reason: BuildReason,
    #[serde(default, deserialize_with = "nullable")]
    pub resources: Vec<WorkspaceResource>,
    #[serde(default)]
    pub deadline: Option<Timestamp>,
    #[serde(default)]
    pub max_deadline: Option<Timestamp>,
    pub status: WorkspaceStatus,
    #[serde(default)]
    pub daily_cost: i64,
    #[serde(default, deserialize_with = "nullable")]
    pub matched_provisioners: MatchedProvisioners,
    #[serde(default, deserialize_with = "json::optional_id")]
    pub template_version_preset_id: Option<PresetId>,
    /// None until the job has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_ai_task: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has_external_agent: Option<bool>,
}

/// Reads an unknown reason of a newer server as "initiator": the client decides nothing by it.
fn reason<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BuildReason, D::Error> {
    let word: Option<std::borrow::Cow<'de, str>> = Option::deserialize(deserializer)?;
    Ok(word.and_then(|word| word.parse().ok()).unwrap_or_default())
}

/// Starts a build.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CreateWorkspaceBuildRequest {
    /// None takes the last build's version; written as the zero UUID.
    #[serde(default, with = "json::nil_as_none")]
    pub template_version_id: Option<TemplateVersionId>,
    pub transition: Transition,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub dry_run: bool,
    /// Terraform state to build on instead of the last one.
    #[serde(default, rename = "state", skip_serializing_if = "Blob::is_empty")]
    pub provisioner_state: Blob,
    /// Deletes the workspace without touching its resources.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "json::is_default")]
    pub orphan: bool,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub rich_parameter_values: Vec<NameValue>,
    /// `debug` or empty.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub log_level: String,
    /// None for no preset; written as the zero UUID.
    #[serde(default, with = "json::nil_as_none")]
    pub template_version_preset_id: Option<PresetId>,
    /// One for which [`BuildReason::may_be_requested`] holds.
    #[serde(default, deserialize_with = "json::optional_enum", skip_serializing_if = "Option::is_none")]
    pub reason: Option<BuildReason>,
}

impl CreateWorkspaceBuildRequest {
    /// A build of the workspace's present version with its present parameters.
    #[must_use]
    pub fn new(transition: Transition) -> Self {
        Self {
            template_version_id: None,
            transition,
            dry_run: false,
            provisioner_state: Blob::default(),
            orphan: false,
            rich_parameter_values: Vec::new(),
            log_level: String::new(),
            template_version_preset_id: None,
            reason: None,
        }
    }
}

/// Replaces a build's state without building.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateBuildStateRequest {
    pub state: Blob,
}

/// A value a build ran with.
pub type WorkspaceBuildParameter = NameValue;

/// How long the parts of a build took (http-api 7.2).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceBuildTimings {
    #[serde(deserialize_with = "nullable")]
    pub provisioner_timings: Vec<ProvisionerTiming>,
    #[serde(deserialize_with = "nullable")]
    pub agent_script_timings: Vec<AgentScriptTiming>,
    #[serde(deserialize_with = "nullable")]
    pub agent_connection_timings: Vec<AgentConnectionTiming>,
}

/// How long one Terraform step took.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerTiming {
    pub job_id: coder_domain::ids::JobId,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub stage: String,
    pub source: String,
    pub action: String,
    pub resource: String,
}
