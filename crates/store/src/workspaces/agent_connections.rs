//! Which agents may connect, and when each of them was connected (agent 1.5, 2.10).

use coder_domain::ids::{
    AgentId, BuildId, JobId, OrganizationId, TemplateId, TemplateVersionId, UserId, WorkspaceId,
};
use coder_domain::secret::Secret;
use jiff::Timestamp;

use super::agents::hash_token;
use crate::Result;
use crate::engine::{Tx, list as list_value, record, sql, statements, values};

record! {
    /// An agent that may connect, and what it belongs to.
    pub struct AgentIdentity {
        /// The agent.
        pub agent_id: AgentId,
        /// Its name.
        pub agent_name: String,
        /// Of sub-agents.
        pub parent_id: Option<AgentId>,
        /// Its workspace.
        pub workspace_id: WorkspaceId,
        /// The name of the workspace.
        pub workspace_name: String,
        /// The organization of the workspace.
        pub organization_id: OrganizationId,
        /// The template of the workspace.
        pub template_id: TemplateId,
        /// The owner of the workspace.
        pub owner_id: UserId,
        /// The name of the owner.
        pub owner_username: String,
        /// Whether the owner's account is not suspended.
        pub owner_active: bool,
        /// The build that made the agent.
        pub build_id: BuildId,
        /// The version of that build.
        pub template_version_id: TemplateVersionId,
        /// The job of that build.
        pub job_id: JobId,
    }
}

/// The workspace of an agent, whether or not the agent may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentPlace {
    /// The workspace.
    pub workspace_id: WorkspaceId,
    /// The build that made the agent.
    pub build_id: BuildId,
    /// Whether the workspace has no later build.
    pub is_latest: bool,
}

macro_rules! made_by {
    () => {
        " from workspace_agents as agent
        join workspace_resources as resource on resource.id = agent.resource_id
        join workspace_builds as build on build.job_id = resource.job_id
        join provisioner_jobs as job on job.id = build.job_id
        join workspaces as workspace on workspace.id = build.workspace_id
        join users as owner on owner.id = workspace.owner_id "
    };
}

/// The build is the latest one, or a successful start whose stop is under way: its agents run their stop scripts.
macro_rules! may_connect {
    () => {
        " not agent.deleted and not workspace.deleted and not owner.deleted
        and (not exists (select 1 from workspace_builds as later where later.workspace_id = build.workspace_id
                and later.build_number > build.build_number)
            or (build.transition = 'start' and job.completed_us is not null and job.error = ''
                and job.canceled_us is null
                and exists (select 1 from workspace_builds as stopping
                    join provisioner_jobs as stop_job on stop_job.id = stopping.job_id
                    where stopping.workspace_id = build.workspace_id
                    and stopping.build_number = build.build_number + 1
                    and stopping.transition = 'stop' and stop_job.completed_us is null)
                and not exists (select 1 from workspace_builds as later where later.workspace_id = build.workspace_id
                    and later.build_number > build.build_number + 1))) "
    };
}

statements! { "workspace_agent_connections";
    AUTHENTICATE = sql(concat!("select agent.id as agent_id, agent.name as agent_name, agent.parent_id,
        workspace.id as workspace_id, workspace.name as workspace_name, workspace.organization_id,
        workspace.template_id, owner.id as owner_id, owner.username as owner_username,
        owner.status <> 'suspended' as owner_active, build.id as build_id, build.template_version_id, build.job_id",
        made_by!(), "where agent.auth_token = $1 and", may_connect!(),
        "order by agent.created_us desc, agent.id limit 1"));
    LIST_ALLOWED = sql(concat!("select agent.id", made_by!(),
        "where agent.id in (select value from json_each($1)) and", may_connect!()));
    FIND_PLACE = sql(concat!("select workspace.id as workspace_id, build.id as build_id,
        not exists (select 1 from workspace_builds as later where later.workspace_id = build.workspace_id
            and later.build_number > build.build_number) as is_latest",
        made_by!(), "where agent.id = $1 and not agent.deleted"));
    /// The contact is after the end of the connection before it, also when the clock was set back.
    CONNECT = sql("insert into workspace_agent_connections (agent_id, connection, first_connected_us,
        last_connected_us) values ($1, $2, $3, $3)
        on conflict (agent_id) do update set connection = excluded.connection,
        last_connected_us = case when workspace_agent_connections.disconnected_us >= excluded.last_connected_us
            then workspace_agent_connections.disconnected_us + 1 else excluded.last_connected_us end");
    KEEP = sql("update workspace_agent_connections set last_connected_us = $2
        where agent_id in (select value from json_each($1)) and last_connected_us < $2
        and (disconnected_us is null or disconnected_us < last_connected_us)");
    DISCONNECT = sql("update workspace_agent_connections set
        disconnected_us = case when last_connected_us > $3 then last_connected_us else $3 end
        where agent_id = $1 and connection = $2");
}

/// The agent with this token, if it may connect; of several with one token the newest.
pub async fn authenticate(tx: &mut Tx, token: &Secret) -> Result<Option<AgentIdentity>> {
    let row = tx.fetch_opt(&AUTHENTICATE, values![hash_token(token)]).await?;
    row.as_ref().map(AgentIdentity::from_row).transpose()
}

/// Those of `agents` that may be connected.
pub async fn list_allowed(tx: &mut Tx, agents: &[AgentId]) -> Result<Vec<AgentId>> {
    let rows = tx.fetch(&LIST_ALLOWED, vec![list_value(agents.iter().copied())]).await?;
    rows.iter().map(|row| row.get("id")).collect()
}

/// What an agent belongs to. Agents of imports and dry runs belong to nothing.
pub async fn find_place(tx: &mut Tx, agent: AgentId) -> Result<Option<AgentPlace>> {
    let Some(row) = tx.fetch_opt(&FIND_PLACE, values![agent]).await? else { return Ok(None) };
    Ok(Some(AgentPlace {
        workspace_id: row.get("workspace_id")?,
        build_id: row.get("build_id")?,
        is_latest: row.get("is_latest")?,
    }))
}

/// An agent has connected; `connection` names this connection.
///
/// # Errors
/// [`crate::Error::Reference`] when the agent is missing.
pub async fn connect(tx: &mut Tx, agent: AgentId, connection: &str, now: Timestamp) -> Result<()> {
    tx.execute(&CONNECT, values![agent, connection.to_owned(), now]).await.map(|_| ())
}

/// These agents are connected now: one statement for all.
pub async fn update_contacts(tx: &mut Tx, agents: &[AgentId], now: Timestamp) -> Result<u64> {
    let mut row = vec![list_value(agents.iter().copied())];
    row.extend(values![now]);
    tx.execute(&KEEP, row).await
}

/// A connection has ended. Nothing happens when the agent has connected again.
pub async fn disconnect(tx: &mut Tx, agent: AgentId, connection: &str, now: Timestamp) -> Result<bool> {
    Ok(tx.execute(&DISCONNECT, values![agent, connection.to_owned(), now]).await? > 0)
}
