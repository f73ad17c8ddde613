//! What agents ask over REST, and what others see of agents beyond [`crate::resources::WorkspaceAgent`].

use std::fmt;

use coder_domain::Timestamp;
use coder_domain::ids::{AgentId, LogSourceId, UserId, WorkspaceId};
use coder_domain::secret::Secret;
use serde::{Deserialize, Serialize};

use crate::jobs::LogLevel;
use crate::json::{self, nullable};

/// The public half of a user's key pair for Git.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GitSshKey {
    pub user_id: UserId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// A line of `authorized_keys`.
    pub public_key: String,
}

/// The key pair that an agent gives to Git.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentGitSshKey {
    pub public_key: String,
    #[serde(with = "exposed")]
    pub private_key: Secret,
}

/// The account of a workspace's owner at a provider, or where to connect one.
#[derive(Clone, Serialize, Deserialize)]
pub struct AgentExternalAuth {
    #[serde(default = "none", with = "exposed")]
    pub access_token: Secret,
    /// What the provider sent with the token; our server has none.
    #[serde(default)]
    pub token_extra: Option<serde_json::Map<String, serde_json::Value>>,
    /// Where the owner connects an account; empty when there is one.
    #[serde(default)]
    pub url: String,
    #[serde(default, rename = "type")]
    pub kind: String,
    /// What Git asks for.
    #[serde(default = "none", with = "exposed")]
    pub username: Secret,
    #[serde(default = "none", with = "exposed")]
    pub password: Secret,
}

/// What the provider sent with the token may be secret, too.
impl fmt::Debug for AgentExternalAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentExternalAuth")
            .field("kind", &self.kind)
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

fn none() -> Secret {
    Secret::new("")
}

/// Secrets that are sent as they are.
mod exposed {
    use coder_domain::secret::Secret;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(secret: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(secret.expose())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        Ok(Secret::new(Option::<String>::deserialize(deserializer)?.unwrap_or_default()))
    }
}

/// Log lines of one source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppendAgentLogs {
    /// None for lines from outside of the agent.
    #[serde(with = "json::nil_as_none")]
    pub log_source_id: Option<LogSourceId>,
    #[serde(deserialize_with = "nullable")]
    pub logs: Vec<NewAgentLog>,
}

/// A log line to be stored. The server sets its own time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewAgentLog {
    #[serde(deserialize_with = "nullable")]
    pub output: String,
    pub level: LogLevel,
}

/// A source of logs to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewLogSource {
    pub id: LogSourceId,
    #[serde(deserialize_with = "nullable")]
    pub display_name: String,
    #[serde(deserialize_with = "nullable")]
    pub icon: String,
}

/// An item of metadata and its newest value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentMetadata {
    pub result: MetadataResult,
    pub description: MetadataDescription,
}

/// The newest value of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetadataResult {
    /// Go's zero time before the first value.
    pub collected_at: Timestamp,
    /// Seconds since then.
    pub age: i64,
    #[serde(default)]
    pub value: String,
    #[serde(default)]
    pub error: String,
}

/// What the template says about an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataDescription {
    pub display_name: String,
    pub key: String,
    pub script: String,
    /// Seconds.
    pub interval: i64,
    /// Seconds.
    pub timeout: i64,
}

/// A port that a program of the workspace listens on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListeningPort {
    pub process_name: String,
    pub network: String,
    pub port: u16,
}

/// The ports that programs of the workspace listen on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListeningPorts {
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ListeningPort>,
}

/// The containers in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentContainers {
    #[serde(deserialize_with = "nullable")]
    pub devcontainers: Vec<serde_json::Value>,
    #[serde(deserialize_with = "nullable")]
    pub containers: Vec<serde_json::Value>,
}

/// Which app of a workspace is in use; empty for any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkspaceUsage {
    #[serde(with = "json::nil_as_none")]
    pub agent_id: Option<AgentId>,
    #[serde(deserialize_with = "nullable")]
    pub app_name: String,
}

/// A port that others may open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortShare {
    pub workspace_id: WorkspaceId,
    pub agent_name: String,
    pub port: i64,
    pub share_level: String,
    pub protocol: String,
}

/// The shared ports of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PortShares {
    #[serde(deserialize_with = "nullable")]
    pub shares: Vec<PortShare>,
}

/// Shares a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpsertPortShare {
    #[serde(deserialize_with = "nullable")]
    pub agent_name: String,
    pub port: i64,
    #[serde(deserialize_with = "nullable")]
    pub share_level: String,
    #[serde(deserialize_with = "nullable")]
    pub protocol: String,
}

/// Ends the sharing of a port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeletePortShare {
    #[serde(deserialize_with = "nullable")]
    pub agent_name: String,
    pub port: i64,
}

/// How long a script of an agent ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentScriptTiming {
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub exit_code: i64,
    pub stage: String,
    pub status: String,
    pub display_name: String,
    pub workspace_agent_id: String,
    pub workspace_agent_name: String,
}

/// How long an agent took to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentConnectionTiming {
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub stage: String,
    pub workspace_agent_id: String,
    pub workspace_agent_name: String,
}
