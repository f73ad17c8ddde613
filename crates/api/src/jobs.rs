//! Provisioner jobs and their logs.

use coder_domain::Timestamp;
use coder_domain::ids::WorkspaceId;
use coder_domain::ids::{
    BuildId, DaemonId, FileId, JobId, OrganizationId, TemplateId, TemplateVersionId, UserId,
};
pub use coder_domain::job::{Status, Type};
use coder_domain::tags::TagSet;
use serde::{Deserialize, Serialize};

use crate::json::{self, nullable};

string_enums! {
    /// Who wrote a log line.
    pub enum LogSource {
        ProvisionerDaemon = "provisioner_daemon",
        Provisioner = "provisioner",
    }

    /// How important a log line is.
    pub enum LogLevel {
        Trace = "trace",
        Debug = "debug",
        Info = "info",
        Warn = "warn",
        Error = "error",
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerJob {
    pub id: JobId,
    pub created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canceled_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// One of the codes in [`coder_domain::job`], or empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error_code: String,
    pub status: Status,
    #[serde(default, deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<DaemonId>,
    /// Filled by the jobs endpoints only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub worker_name: String,
    #[serde(default)]
    pub file_id: FileId,
    #[serde(default, deserialize_with = "nullable")]
    pub tags: TagSet,
    #[serde(default)]
    pub queue_position: i64,
    #[serde(default)]
    pub queue_size: i64,
    #[serde(default)]
    pub organization_id: OrganizationId,
    #[serde(default)]
    pub initiator_id: UserId,
    #[serde(default)]
    pub input: ProvisionerJobInput,
    #[serde(rename = "type")]
    pub kind: Type,
    /// Daemons that could take a waiting job; filled by the jobs endpoints only.
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub available_workers: Vec<DaemonId>,
    /// Filled by the jobs endpoints only.
    #[serde(default)]
    pub metadata: ProvisionerJobMetadata,
    #[serde(default)]
    pub logs_overflowed: bool,
    /// What ran it; not a field of the official API. None before it is chosen, and from official servers and daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Program>,
}

/// The program that runs the templates of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// `terraform` or `opentofu`.
    pub product: String,
    /// The version as the program reports it, for example `1.9.8`.
    pub version: String,
}

impl std::fmt::Display for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let product = match self.product.as_str() {
            "terraform" => "Terraform",
            "opentofu" => "OpenTofu",
            other => other,
        };
        write!(f, "{product} {}", self.version)
    }
}

/// What a job works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProvisionerJobInput {
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub template_version_id: Option<TemplateVersionId>,
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub workspace_build_id: Option<BuildId>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

/// Names of what a job works on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProvisionerJobMetadata {
    pub template_version_name: String,
    #[serde(with = "json::nil_as_none")]
    pub template_id: Option<TemplateId>,
    pub template_name: String,
    pub template_display_name: String,
    pub template_icon: String,
    #[serde(deserialize_with = "json::optional_id", skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workspace_name: String,
}

/// One line of a job's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerJobLog {
    /// Grows over one job.
    pub id: i64,
    pub created_at: Timestamp,
    #[serde(default)]
    pub log_source: LogSource,
    #[serde(default)]
    pub log_level: LogLevel,
    /// A stage other than the line's before opens a new block in the output; empty belongs to the current one.
    #[serde(default)]
    pub stage: String,
    #[serde(default)]
    pub output: String,
}
