//! Sessions that agents report: SSH, editors and terminals.

use coder_domain::ids::{AgentId, OrganizationId, UserId, WorkspaceId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Result;
use crate::engine::{Tx, Value, record, sql, statements, values};

/// Sessions of one agent that are kept.
pub const MAX_SESSIONS: i64 = 10_000;

record! {
    /// A session, and what its agent belongs to.
    pub struct ListedSession {
        /// Given by the agent.
        pub id: Uuid,
        /// `ssh`, `vscode`, `jetbrains` or `reconnecting_pty`.
        pub kind: String = "type",
        /// The address of the other side, as the agent sees it.
        pub ip: String,
        /// When it began.
        pub connected_at: Timestamp = "connected_us",
        /// When it ended.
        pub disconnected_at: Option<Timestamp> = "disconnected_us",
        /// The exit code of its command.
        pub status_code: i64,
        /// Why it ended.
        pub reason: String,
        /// The agent's name.
        pub agent_name: String,
        /// The workspace.
        pub workspace_id: WorkspaceId,
        /// Its name.
        pub workspace_name: String,
        /// Its organization.
        pub organization_id: OrganizationId,
        /// Its owner.
        pub owner_id: UserId,
        /// The owner's name.
        pub owner_username: String,
    }
}

/// Selects sessions. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct ConnectionLogFilter {
    /// Only of this organization.
    pub organization_id: Option<OrganizationId>,
    /// Only of workspaces of this user.
    pub owner_id: Option<UserId>,
    /// Only of this workspace.
    pub workspace_id: Option<WorkspaceId>,
    /// Only of this kind.
    pub kind: Option<String>,
    /// Only this one.
    pub id: Option<Uuid>,
    /// Only those that began at or after this instant.
    pub since: Option<Timestamp>,
    /// Only those that began before this instant.
    pub until: Option<Timestamp>,
    /// Only those that have ended, or only the others.
    pub has_ended: Option<bool>,
}

impl ConnectionLogFilter {
    fn values(&self) -> Vec<Value> {
        values![
            self.organization_id,
            self.owner_id,
            self.workspace_id,
            self.kind,
            self.id,
            self.since,
            self.until,
            self.has_ended.map(i64::from),
        ]
    }
}

macro_rules! matching {
    () => {
        " from workspace_connections as session
        join workspace_agents as agent on agent.id = session.agent_id
        join workspace_resources as resource on resource.id = agent.resource_id
        join workspace_builds as build on build.job_id = resource.job_id
        join workspaces as workspace on workspace.id = build.workspace_id
        join users as owner on owner.id = workspace.owner_id
        where (cast($1 as text) is null or workspace.organization_id = $1)
        and (cast($2 as text) is null or workspace.owner_id = $2)
        and (cast($3 as text) is null or workspace.id = $3) and (cast($4 as text) is null or session.type = $4)
        and (cast($5 as text) is null or session.id = $5)
        and (cast($6 as bigint) is null or session.connected_us >= $6)
        and (cast($7 as bigint) is null or session.connected_us < $7)
        and (cast($8 as bigint) is null or (session.disconnected_us is not null) = ($8 = 1)) "
    };
}

statements! { "workspace_connections";
    INSERT = sql("insert into workspace_connections (agent_id, id, type, ip, connected_us, status_code, reason)
        select $1, $2, $3, $4, $5, 0, '' where (select count(*) from workspace_connections where agent_id = $1) < $6
        on conflict (agent_id, id) do nothing");
    END = sql("update workspace_connections set disconnected_us = $3, status_code = $4, reason = $5
        where agent_id = $1 and id = $2 and disconnected_us is null");
    PAGE = sql(concat!("select session.id, session.type, session.ip, session.connected_us, session.disconnected_us,
        session.status_code, session.reason, agent.name as agent_name, workspace.id as workspace_id,
        workspace.name as workspace_name, workspace.organization_id, workspace.owner_id,
        owner.username as owner_username", matching!(),
        "order by session.connected_us desc, session.id desc limit $9 offset $10"));
    COUNT = sql(concat!("select count(*) as total", matching!()));
    PURGE = sql("delete from workspace_connections where connected_us < $1");
}

/// A session has begun. Nothing is stored when the agent has reported too many, or the same one before.
///
/// # Errors
/// [`crate::Error::Reference`] when the agent is missing.
pub async fn insert(
    tx: &mut Tx,
    agent: AgentId,
    id: Uuid,
    kind: &str,
    ip: &str,
    connected_at: Timestamp,
) -> Result<()> {
    let row = values![agent, id, kind.to_owned(), ip.to_owned(), connected_at, MAX_SESSIONS];
    tx.execute(&INSERT, row).await.map(|_| ())
}

/// A session has ended.
pub async fn update_ended(
    tx: &mut Tx,
    agent: AgentId,
    id: Uuid,
    disconnected_at: Timestamp,
    status_code: i64,
    reason: &str,
) -> Result<()> {
    let row = values![agent, id, disconnected_at, status_code, reason.to_owned()];
    tx.execute(&END, row).await.map(|_| ())
}

/// A page of the sessions that match a filter, newest first.
pub async fn page(
    tx: &mut Tx,
    filter: &ConnectionLogFilter,
    limit: i64,
    offset: i64,
) -> Result<Vec<ListedSession>> {
    let mut parameters = filter.values();
    parameters.extend(values![limit, offset]);
    tx.fetch(&PAGE, parameters).await?.iter().map(ListedSession::from_row).collect()
}

/// The number of sessions that match a filter.
pub async fn count(tx: &mut Tx, filter: &ConnectionLogFilter) -> Result<i64> {
    tx.fetch_one(&COUNT, filter.values()).await?.get("total")
}

/// Removes old sessions.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
