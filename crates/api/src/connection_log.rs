//! The connection log: who used which agent, over what, and when.

use coder_domain::Timestamp;
use coder_domain::ids::{UserId, WorkspaceId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::json::nullable;
use crate::organizations::MinimalOrganization;

/// One session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLog {
    pub id: Uuid,
    pub connect_time: Timestamp,
    pub organization: MinimalOrganization,
    pub workspace_owner_id: UserId,
    pub workspace_owner_username: String,
    pub workspace_id: WorkspaceId,
    pub workspace_name: String,
    pub agent_name: String,
    /// As the agent sees it; none when it does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// `ssh`, `vscode`, `jetbrains` or `reconnecting_pty`.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_info: Option<SshSession>,
}

/// What an agent reports of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshSession {
    pub connection_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disconnect_time: Option<Timestamp>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub disconnect_reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i64>,
}

/// A page of sessions, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionLogResponse {
    #[serde(deserialize_with = "nullable")]
    pub connection_logs: Vec<ConnectionLog>,
    /// All matches, not only this page's.
    pub count: i64,
}
