//! Workspace agents and their apps. The definition from the template is stored as a document; the runtime state that an
//! agent reports has columns.

use std::collections::BTreeMap;

use coder_domain::ids::{AgentId, AppId, LogSourceId, ResourceId, ScriptId};
use coder_domain::secret::Secret;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Result;
use crate::engine::{Tx, batch, list as list_value, record, sealed_json_column, sql, statements, values};

/// The definition of an agent in the template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Definition {
    /// The agent's environment variables.
    pub env: BTreeMap<String, String>,
    /// The values of `coder_env`; `env` has precedence.
    pub extra_envs: Vec<(String, String)>,
    /// `linux`, `darwin` or `windows`.
    pub operating_system: String,
    /// For example `amd64`.
    pub architecture: String,
    /// The directory in which it starts.
    pub directory: String,
    /// The connection timeout in seconds.
    pub connection_timeout_seconds: i32,
    /// The URL of a help page.
    pub troubleshooting_url: String,
    /// Message of the day.
    pub motd_file: String,
    /// The names of the shown built-in apps.
    pub display_apps: Vec<String>,
    pub scripts: Vec<Script>,
    /// The metadata that it collects.
    pub metadata: Vec<MetadataItem>,
    /// Thresholds.
    pub memory_monitor: Option<Monitor>,
    /// Thresholds of volumes by path.
    pub volume_monitors: Vec<(String, Monitor)>,
    /// Development containers.
    pub devcontainers: Vec<Devcontainer>,
    /// Order of display.
    pub order: i64,
    /// `all` or `no_user_data`.
    pub api_key_scope: String,
}

/// A script of an agent. Each script is also a log source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Script {
    pub id: ScriptId,
    pub log_source_id: LogSourceId,
    pub display_name: String,
    /// URL or emoji path.
    pub icon: String,
    /// The text.
    pub script: String,
    /// The cron schedule.
    pub cron: String,
    /// Whether users must wait for it before they log in.
    pub start_blocks_login: bool,
    /// Whether it runs at start.
    pub run_on_start: bool,
    /// Whether it runs at stop.
    pub run_on_stop: bool,
    /// The timeout in seconds; 0 for none.
    pub timeout_seconds: i32,
    /// The path of its log file.
    pub log_path: String,
}

/// A metadata item that an agent collects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MetadataItem {
    /// Name.
    pub key: String,
    pub display_name: String,
    /// The script that prints the value.
    pub script: String,
    /// The interval in seconds.
    pub interval: i64,
    /// The timeout in seconds.
    pub timeout: i64,
    /// Order of display.
    pub order: i64,
}

/// A resource threshold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Monitor {
    /// Whether it is monitored.
    pub enabled: bool,
    /// Percent.
    pub threshold: i32,
}

/// A development container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Devcontainer {
    /// Folder.
    pub workspace_folder: String,
    /// Configuration file.
    pub config_path: String,
    pub name: String,
}

/// The definition of an app in the template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppDefinition {
    pub display_name: String,
    /// The command, for apps that run in a terminal.
    pub command: String,
    /// The URL on which it listens, or an external URL.
    pub url: String,
    /// URL or emoji path.
    pub icon: String,
    /// Whether it is served on its own subdomain.
    pub subdomain: bool,
    /// The URL of the health check.
    pub healthcheck_url: String,
    /// The interval in seconds.
    pub healthcheck_interval: i32,
    /// The number of failures after which it is unhealthy.
    pub healthcheck_threshold: i32,
    /// `owner`, `authenticated`, `organization` or `public`.
    pub sharing_level: String,
    /// Whether the URL is outside of the workspace.
    pub external: bool,
    /// Order of display.
    pub order: i64,
    /// Whether it is not shown.
    pub hidden: bool,
    /// `slim-window` or `tab`.
    pub open_in: String,
    /// The group in which it is shown.
    pub group: String,
    /// Help text.
    pub tooltip: String,
}

sealed_json_column!(Definition, AppDefinition);

record! {
    pub struct Agent {
        pub id: AgentId,
        /// The resource it runs on.
        pub resource_id: ResourceId,
        /// Of sub-agents.
        pub parent_id: Option<AgentId>,
        /// Its position in the report.
        pub position: i64,
        /// Unique on its resource.
        pub name: String,
        /// The agent's token, hashed by [`hash_token`].
        pub auth_token: Secret,
        /// The cloud instance with which it authenticates, or empty.
        pub auth_instance_id: String,
        /// The definition in the template.
        pub definition: Definition,
        /// When it was reported.
        pub created_at: Timestamp = "created_us",
        /// When it was last changed.
        pub updated_at: Timestamp = "updated_us",
        /// For example `created`.
        pub lifecycle_state: String,
        /// When it first connected.
        pub first_connected_at: Option<Timestamp> = "first_connected_us",
        /// When it was last connected.
        pub last_connected_at: Option<Timestamp> = "last_connected_us",
        /// When the connection was lost.
        pub disconnected_at: Option<Timestamp> = "disconnected_us",
        /// When its startup scripts started.
        pub started_at: Option<Timestamp> = "started_us",
        /// When its startup scripts ended.
        pub ready_at: Option<Timestamp> = "ready_us",
        pub version: String,
        /// Its protocol version.
        pub api_version: String,
        /// The absolute path of its directory.
        pub expanded_directory: String,
        /// For example `envbuilder`.
        pub subsystems: Vec<String>,
        pub logs_bytes: i64,
        /// Whether logs were dropped.
        pub logs_overflowed: bool,
        /// Whether it was removed.
        pub deleted: bool,
    }
}

impl Agent {
    /// An agent that a job has just reported.
    #[must_use]
    pub fn reported(
        resource_id: ResourceId,
        position: i64,
        name: String,
        auth_token: Secret,
        definition: Definition,
        now: Timestamp,
    ) -> Self {
        Self {
            id: AgentId::random(),
            resource_id,
            parent_id: None,
            position,
            name,
            auth_token: hash_token(&auth_token),
            auth_instance_id: String::new(),
            definition,
            created_at: now,
            updated_at: now,
            lifecycle_state: "created".to_owned(),
            first_connected_at: None,
            last_connected_at: None,
            disconnected_at: None,
            started_at: None,
            ready_at: None,
            version: String::new(),
            api_version: String::new(),
            expanded_directory: String::new(),
            subsystems: Vec::new(),
            logs_bytes: 0,
            logs_overflowed: false,
            deleted: false,
        }
    }
}

record! {
    pub struct App {
        pub id: AppId,
        pub agent_id: AgentId,
        /// Its position in the report.
        pub position: i64,
        /// Unique on its agent.
        pub slug: String,
        /// The definition in the template.
        pub definition: AppDefinition,
        /// `disabled`, `initializing`, `healthy` or `unhealthy`.
        pub health: String,
        /// When it was reported.
        pub created_at: Timestamp = "created_us",
    }
}

macro_rules! columns {
    () => {
        "agent.id, agent.resource_id, agent.parent_id, agent.position, agent.name, agent.auth_token, \
         agent.auth_instance_id, agent.definition, agent.created_us, agent.updated_us, agent.lifecycle_state, \
         live.first_connected_us, live.last_connected_us, live.disconnected_us, agent.started_us, \
         agent.ready_us, agent.version, agent.api_version, agent.expanded_directory, agent.subsystems, \
         agent.logs_bytes, agent.logs_overflowed, agent.deleted"
    };
}

/// Contacts are in a table of their own.
macro_rules! with_contacts {
    () => {
        " from workspace_agents as agent left join workspace_agent_connections as live on live.agent_id = agent.id "
    };
}

statements! { "workspace_agents";
    INSERT = sql("insert into workspace_agents (id, resource_id, parent_id, position, name, auth_token,
        auth_instance_id, definition, created_us, updated_us, lifecycle_state, version, api_version,
        expanded_directory, subsystems, logs_bytes, logs_overflowed, deleted)
        select json_extract(item.value, '$.id'), json_extract(item.value, '$.resource_id'),
        json_extract(item.value, '$.parent_id'), cast(json_extract(item.value, '$.position') as bigint),
        json_extract(item.value, '$.name'), json_extract(item.value, '$.auth_token'),
        json_extract(item.value, '$.auth_instance_id'), json_extract(item.value, '$.definition'),
        cast(json_extract(item.value, '$.created_us') as bigint),
        cast(json_extract(item.value, '$.created_us') as bigint), json_extract(item.value, '$.lifecycle_state'),
        '', '', '', '[]', 0, false, false
        from json_each($1) as item");
    LIST = sql(concat!("select ", columns!(), with_contacts!(), "where agent.resource_id in (select value from json_each($1)) and not agent.deleted
        order by agent.resource_id, agent.position, agent.id"));
    FIND = sql(concat!("select ", columns!(), with_contacts!(), "where agent.id = $1 and not agent.deleted"));
    LIST_CHILDREN = sql(concat!("select ", columns!(), with_contacts!(), "where agent.parent_id = $1 and not agent.deleted
        order by agent.created_us, agent.id"));
    DELETE_CHILD = sql("update workspace_agents set deleted = true, updated_us = $3
        where id = $1 and parent_id = $2 and not deleted");
    INSERT_APPS = sql("insert into workspace_apps (id, agent_id, position, slug, definition, health, created_us)
        select json_extract(item.value, '$.id'), json_extract(item.value, '$.agent_id'),
        cast(json_extract(item.value, '$.position') as bigint), json_extract(item.value, '$.slug'),
        json_extract(item.value, '$.definition'), json_extract(item.value, '$.health'),
        cast(json_extract(item.value, '$.created_us') as bigint)
        from json_each($1) as item");
    LIST_APPS = sql("select id, agent_id, position, slug, definition, health, created_us from workspace_apps
        where agent_id in (select value from json_each($1)) order by agent_id, position, id");
}

/// The stored form of a token. A token is a random UUID, so a plain hash cannot be reversed, and the row is found by
/// the hash.
#[must_use]
pub fn hash_token(token: &Secret) -> Secret {
    Secret::new(format!("{HASHED}{}", hex::encode(Sha256::digest(token.expose().as_bytes()))))
}

/// The prefix of a hashed token. Earlier releases stored tokens unhashed.
pub(crate) const HASHED: &str = "sha256:";

/// Stores all agents of a job with one statement. Their runtime state is empty.
///
/// # Errors
/// [`crate::Error::Reference`] when a resource is missing.
pub async fn insert(tx: &mut Tx, agents: &[Agent]) -> Result<()> {
    if agents.is_empty() {
        return Ok(());
    }
    let row = |agent: &Agent| {
        let (mut row, id) = (agent.values(), agent.id.to_string());
        tx.seal_in("workspace_agents", Agent::COLUMNS, "definition", &id, &mut row);
        row
    };
    let rows = batch(Agent::COLUMNS, agents.iter().map(row));
    tx.execute_pipelined(&INSERT, vec![rows], false).await
}

/// The agents of these resources, in the reported order.
pub async fn list(tx: &mut Tx, resources: &[ResourceId]) -> Result<Vec<Agent>> {
    tx.fetch(&LIST, vec![list_value(resources.iter().copied())]).await?.iter().map(Agent::from_row).collect()
}

pub async fn find(tx: &mut Tx, id: AgentId) -> Result<Option<Agent>> {
    tx.fetch_opt(&FIND, values![id]).await?.as_ref().map(Agent::from_row).transpose()
}

/// The sub-agents of an agent, the oldest first.
pub async fn list_children(tx: &mut Tx, parent: AgentId) -> Result<Vec<Agent>> {
    tx.fetch(&LIST_CHILDREN, values![parent]).await?.iter().map(Agent::from_row).collect()
}

/// Removes a sub-agent of an agent.
///
/// # Errors
/// [`crate::Error::Stale`] when it has no such sub-agent.
pub async fn delete_child(tx: &mut Tx, id: AgentId, parent: AgentId, now: Timestamp) -> Result<()> {
    tx.change_one(&DELETE_CHILD, values![id, parent, now]).await
}

/// Stores all apps of a job with one statement.
///
/// # Errors
/// A conflict on `slug` within an agent; [`crate::Error::Reference`] when an agent is missing.
pub async fn insert_apps(tx: &mut Tx, apps: &[App]) -> Result<()> {
    if apps.is_empty() {
        return Ok(());
    }
    let row = |app: &App| {
        let (mut row, id) = (app.values(), app.id.to_string());
        tx.seal_in("workspace_apps", App::COLUMNS, "definition", &id, &mut row);
        row
    };
    let rows = batch(App::COLUMNS, apps.iter().map(row));
    tx.execute_pipelined(&INSERT_APPS, vec![rows], false).await
}

/// The apps of these agents, in the reported order.
pub async fn list_apps(tx: &mut Tx, agents: &[AgentId]) -> Result<Vec<App>> {
    tx.fetch(&LIST_APPS, vec![list_value(agents.iter().copied())]).await?.iter().map(App::from_row).collect()
}
