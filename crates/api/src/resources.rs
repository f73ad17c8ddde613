//! The resources of a build, with their agents, apps, scripts and metadata.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::ids::{AgentId, AppId, JobId, LogSourceId, ResourceId, ScriptId, WorkspaceId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::jobs::LogLevel;
use crate::json::{self, nullable};
pub use crate::templates::SharingLevel;

string_enums! {
    /// Whether an agent is connected.
    pub enum AgentStatus {
        Connecting = "connecting",
        Connected = "connected",
        Disconnected = "disconnected",
        Timeout = "timeout",
    }

    /// How far an agent has come.
    pub enum AgentLifecycle {
        Created = "created",
        Starting = "starting",
        StartTimeout = "start_timeout",
        StartError = "start_error",
        Ready = "ready",
        ShuttingDown = "shutting_down",
        ShutdownTimeout = "shutdown_timeout",
        ShutdownError = "shutdown_error",
        Off = "off",
    }

    /// Whether log-in waits for the startup script.
    pub enum StartupScriptBehavior {
        NonBlocking = "non-blocking",
        Blocking = "blocking",
    }

    /// Buttons an agent shows.
    pub enum DisplayApp {
        Vscode = "vscode",
        VscodeInsiders = "vscode_insiders",
        WebTerminal = "web_terminal",
        PortForwardingHelper = "port_forwarding_helper",
        SshHelper = "ssh_helper",
    }

    /// Whether an app answers.
    pub enum AppHealth {
        Disabled = "disabled",
        Initializing = "initializing",
        Healthy = "healthy",
        Unhealthy = "unhealthy",
    }

    /// Where an app opens.
    pub enum AppOpenIn {
        SlimWindow = "slim-window",
        Tab = "tab",
    }

    /// The activity that an app reports.
    pub enum AppState {
        Working = "working",
        Idle = "idle",
        Complete = "complete",
        Failure = "failure",
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceResource {
    pub id: ResourceId,
    pub created_at: Timestamp,
    pub job_id: JobId,
    pub workspace_transition: Transition,
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    #[serde(default)]
    pub hide: bool,
    #[serde(default)]
    pub icon: String,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<WorkspaceAgent>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<ResourceMetadata>,
    #[serde(default)]
    pub daily_cost: i64,
}

/// A fact about a resource. Sensitive ones travel in clear but are not shown by `Debug`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceMetadata {
    pub key: String,
    pub value: String,
    pub sensitive: bool,
}

impl std::fmt::Debug for ResourceMetadata {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = if self.sensitive { "…" } else { &self.value };
        f.debug_struct("ResourceMetadata").field("key", &self.key).field("value", &value).finish()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceAgent {
    pub id: AgentId,
    #[serde(default)]
    pub parent_id: Option<AgentId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_connected_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_connected_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnected_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_at: Option<Timestamp>,
    #[serde(default)]
    pub status: AgentStatus,
    #[serde(default)]
    pub lifecycle_state: AgentLifecycle,
    pub name: String,
    pub resource_id: ResourceId,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub instance_id: String,
    #[serde(default)]
    pub architecture: String,
    /// `null` when empty: the one map that is.
    #[serde(default)]
    pub environment_variables: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub operating_system: String,
    /// Bytes.
    #[serde(default)]
    pub logs_length: i64,
    #[serde(default)]
    pub logs_overflowed: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub expanded_directory: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    pub apps: Vec<WorkspaceApp>,
    #[serde(default, deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub latency: BTreeMap<String, RegionLatency>,
    #[serde(default)]
    pub connection_timeout_seconds: i64,
    #[serde(default)]
    pub troubleshooting_url: String,
    #[serde(default, deserialize_with = "nullable")]
    pub subsystems: Vec<String>,
    #[serde(default)]
    pub health: AgentHealth,
    #[serde(default, deserialize_with = "nullable")]
    pub display_apps: Vec<DisplayApp>,
    #[serde(default, deserialize_with = "nullable")]
    pub log_sources: Vec<AgentLogSource>,
    #[serde(default, deserialize_with = "nullable")]
    pub scripts: Vec<AgentScript>,
    #[serde(default)]
    pub startup_script_behavior: StartupScriptBehavior,
}

/// Round-trip time to a relay region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionLatency {
    pub preferred: bool,
    pub latency_ms: f64,
}

/// Whether an agent is well, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentHealth {
    pub healthy: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Where lines of an agent's log come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLogSource {
    pub workspace_agent_id: AgentId,
    pub id: LogSourceId,
    pub created_at: Timestamp,
    #[serde(default)]
    pub display_name: String,
    #[serde(default)]
    pub icon: String,
}

/// A script an agent runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentScript {
    pub id: ScriptId,
    pub log_source_id: LogSourceId,
    #[serde(default)]
    pub log_path: String,
    #[serde(default)]
    pub script: String,
    #[serde(default)]
    pub cron: String,
    #[serde(default)]
    pub run_on_start: bool,
    #[serde(default)]
    pub run_on_stop: bool,
    #[serde(default)]
    pub start_blocks_login: bool,
    /// Nanoseconds.
    #[serde(default)]
    pub timeout: i64,
    #[serde(default)]
    pub display_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceApp {
    pub id: AppId,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub url: String,
    #[serde(default)]
    pub external: bool,
    pub slug: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub icon: String,
    #[serde(default)]
    pub subdomain: bool,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subdomain_name: String,
    #[serde(default)]
    pub sharing_level: SharingLevel,
    #[serde(default)]
    pub healthcheck: AppHealthcheck,
    #[serde(default)]
    pub health: AppHealth,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(default)]
    pub hidden: bool,
    #[serde(default)]
    pub open_in: AppOpenIn,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tooltip: String,
    #[serde(default, deserialize_with = "nullable")]
    pub statuses: Vec<AppStatus>,
}

/// How an app is probed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppHealthcheck {
    pub url: String,
    /// Seconds.
    pub interval: i64,
    /// Failures in a row until it counts as unhealthy.
    pub threshold: i64,
}

/// A status message of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    pub id: Uuid,
    pub created_at: Timestamp,
    pub workspace_id: WorkspaceId,
    pub agent_id: AgentId,
    pub app_id: AppId,
    #[serde(default)]
    pub state: AppState,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub uri: String,
    #[serde(default)]
    pub icon: String,
    #[serde(default)]
    pub needs_user_attention: bool,
}

/// One line of an agent's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceAgentLog {
    pub id: i64,
    pub created_at: Timestamp,
    #[serde(default)]
    pub output: String,
    #[serde(default)]
    pub level: LogLevel,
    #[serde(default, with = "json::nil_as_none")]
    pub source_id: Option<LogSourceId>,
}
