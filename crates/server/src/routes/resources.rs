//! Converts the resources of a job to the API type, with agents and apps.

use std::collections::{BTreeMap, HashMap};

use coder_api::resources::{
    AgentHealth, AgentLifecycle, AgentLogSource, AgentScript, AgentStatus, AppHealthcheck, ResourceMetadata,
    StartupScriptBehavior, WorkspaceAgent, WorkspaceApp, WorkspaceResource,
};
use coder_domain::Timestamp;
use coder_domain::agent::{ConnectionFacts, ConnectionStatus};
use coder_domain::apps::SubdomainName;
use coder_domain::ids::{AgentId, JobId, ResourceId};
use coder_store::Tx;
use coder_store::workspaces::builds::{self, Names};
use coder_store::workspaces::{agent_logs, agents, resources};

use crate::context::App;
use crate::http::Result;

/// The resources of one job.
pub async fn of_job(app: &App, tx: &mut Tx, job: JobId) -> Result<Vec<WorkspaceResource>> {
    Ok(of_jobs(app, tx, &[job]).await?.remove(&job).unwrap_or_default())
}

/// The resources of several jobs, read with one statement per table.
pub async fn of_jobs(
    app: &App,
    tx: &mut Tx,
    jobs: &[JobId],
) -> Result<HashMap<JobId, Vec<WorkspaceResource>>> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = resources::list(tx, jobs).await?;
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let mut on_resource = agents_of(app, tx, &ids).await?;
    name_subdomains(tx, &rows, &mut on_resource).await?;
    let mut by_job: HashMap<JobId, Vec<_>> = HashMap::new();
    for row in rows {
        let agents = on_resource.remove(&row.id).unwrap_or_default();
        by_job.entry(row.job_id).or_default().push(resource(row, agents));
    }
    Ok(by_job)
}

/// Fills in the host names of apps. Apps of imports have none.
async fn name_subdomains(
    tx: &mut Tx,
    rows: &[resources::Resource],
    on_resource: &mut HashMap<ResourceId, Vec<WorkspaceAgent>>,
) -> Result<()> {
    let has_subdomain = |resource: &&resources::Resource| {
        let agents = on_resource.get(&resource.id).map(Vec::as_slice).unwrap_or_default();
        agents.iter().flat_map(|agent| &agent.apps).any(|app| app.subdomain)
    };
    let jobs: Vec<_> = rows.iter().filter(has_subdomain).map(|resource| resource.job_id).collect();
    if jobs.is_empty() {
        return Ok(());
    }
    let names = builds::list_names(tx, &jobs).await?;
    for row in rows {
        let Some(names) = names.get(&row.job_id) else { continue };
        for agent in on_resource.get_mut(&row.id).into_iter().flatten() {
            name_apps(&mut agent.apps, names);
        }
    }
    Ok(())
}

fn name_apps(apps: &mut [WorkspaceApp], names: &Names) {
    for app in apps.iter_mut().filter(|app| app.subdomain) {
        app.subdomain_name = SubdomainName::of_app(&app.slug, &names.workspace, &names.owner);
    }
}

async fn agents_of(
    app: &App,
    tx: &mut Tx,
    ids: &[ResourceId],
) -> Result<HashMap<ResourceId, Vec<WorkspaceAgent>>> {
    let mut found: HashMap<ResourceId, Vec<_>> = HashMap::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let mut rows = agents::list(tx, ids).await?;
    if rows.is_empty() {
        return Ok(found);
    }
    rows.sort_by(|a, b| (a.definition.order, &a.name).cmp(&(b.definition.order, &b.name)));
    let agent_ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let mut apps: HashMap<AgentId, Vec<_>> = HashMap::new();
    for row in agents::list_apps(tx, &agent_ids).await? {
        apps.entry(row.agent_id).or_default().push(row);
    }
    let mut sources: HashMap<AgentId, Vec<_>> = HashMap::new();
    for source in agent_logs::list_sources(tx, &agent_ids).await? {
        sources.entry(source.agent_id).or_default().push(source);
    }
    let now = app.now();
    for row in rows.into_iter().filter(|row| !row.deleted) {
        let mut own = apps.remove(&row.id).unwrap_or_default();
        own.sort_by(|a, b| app_order(a).cmp(&app_order(b)));
        let sources = sources.remove(&row.id).unwrap_or_default();
        found.entry(row.resource_id).or_default().push(agent(row, own, sources, now));
    }
    Ok(found)
}

/// One agent.
pub async fn of_agent(app: &App, tx: &mut Tx, row: agents::Agent) -> Result<WorkspaceAgent> {
    let mut apps = agents::list_apps(tx, &[row.id]).await?;
    apps.sort_by(|a, b| app_order(a).cmp(&app_order(b)));
    let sources = agent_logs::list_sources(tx, &[row.id]).await?;
    let resource = resources::find(tx, row.resource_id).await?;
    let mut view = agent(row, apps, sources, app.now());
    if let Some(resource) = resource.filter(|_| view.apps.iter().any(|app| app.subdomain)) {
        let names = builds::list_names(tx, &[resource.job_id]).await?;
        names.values().for_each(|names| name_apps(&mut view.apps, names));
    }
    Ok(view)
}

/// The order of apps and agents: by `order`, then by name, as on the official server.
fn app_order(app: &agents::App) -> (i64, &str, &str) {
    (app.definition.order, &app.definition.display_name, &app.slug)
}

fn resource(row: resources::Resource, agents: Vec<WorkspaceAgent>) -> WorkspaceResource {
    let metadata = |row: resources::Metadata| ResourceMetadata {
        key: row.key,
        value: row.value,
        sensitive: row.sensitive,
    };
    WorkspaceResource {
        id: row.id,
        created_at: row.created_at,
        job_id: row.job_id,
        workspace_transition: row.transition,
        kind: row.kind,
        name: row.name,
        hide: row.hide,
        icon: row.icon,
        agents,
        metadata: row.metadata.into_iter().map(metadata).collect(),
        daily_cost: row.daily_cost,
    }
}

fn agent(
    row: agents::Agent,
    apps: Vec<agents::App>,
    sources: Vec<agent_logs::LogSource>,
    now: Timestamp,
) -> WorkspaceAgent {
    let lifecycle = AgentLifecycle::from(row.lifecycle_state.as_str());
    let (connection, disconnected_at) = connection(&row, now);
    let status = status(connection);
    let health = health(&status, &lifecycle);
    let definition = row.definition;
    let source = |script: &agents::Script| AgentLogSource {
        workspace_agent_id: row.id,
        id: script.log_source_id,
        created_at: row.created_at,
        display_name: script.display_name.clone(),
        icon: script.icon.clone(),
    };
    let more = |source: agent_logs::LogSource| AgentLogSource {
        workspace_agent_id: source.agent_id,
        id: source.id,
        created_at: source.created_at,
        display_name: source.display_name,
        icon: source.icon,
    };
    let log_sources = definition.scripts.iter().map(source).chain(sources.into_iter().map(more)).collect();
    let blocks = definition.scripts.iter().any(|script| script.start_blocks_login);
    let environment: BTreeMap<_, _> = definition.extra_envs.into_iter().chain(definition.env).collect();
    WorkspaceAgent {
        id: row.id,
        parent_id: row.parent_id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        first_connected_at: row.first_connected_at,
        last_connected_at: row.last_connected_at,
        disconnected_at,
        started_at: row.started_at,
        ready_at: row.ready_at,
        status,
        lifecycle_state: lifecycle,
        name: row.name,
        resource_id: row.resource_id,
        instance_id: row.auth_instance_id,
        architecture: definition.architecture,
        environment_variables: Some(environment).filter(|map| !map.is_empty()),
        operating_system: definition.operating_system,
        logs_length: row.logs_bytes,
        logs_overflowed: row.logs_overflowed,
        directory: definition.directory,
        expanded_directory: row.expanded_directory,
        version: row.version,
        api_version: row.api_version,
        apps: apps.into_iter().map(app_view).collect(),
        latency: BTreeMap::new(),
        connection_timeout_seconds: i64::from(definition.connection_timeout_seconds),
        troubleshooting_url: definition.troubleshooting_url,
        subsystems: row.subsystems,
        health,
        display_apps: definition.display_apps.iter().map(|word| word.as_str().into()).collect(),
        log_sources,
        scripts: definition.scripts.into_iter().map(script).collect(),
        startup_script_behavior: if blocks {
            StartupScriptBehavior::Blocking
        } else {
            StartupScriptBehavior::NonBlocking
        },
    }
}

/// The connection status of an agent, and when it was disconnected.
pub fn connection(row: &agents::Agent, now: Timestamp) -> (ConnectionStatus, Option<Timestamp>) {
    let facts = ConnectionFacts {
        created_at: row.created_at,
        first_connected_at: row.first_connected_at,
        last_connected_at: row.last_connected_at,
        disconnected_at: row.disconnected_at,
        connection_timeout_seconds: i64::from(row.definition.connection_timeout_seconds),
    };
    facts.status(now)
}

fn status(status: ConnectionStatus) -> AgentStatus {
    match status {
        ConnectionStatus::Connecting => AgentStatus::Connecting,
        ConnectionStatus::Connected => AgentStatus::Connected,
        ConnectionStatus::Disconnected => AgentStatus::Disconnected,
        ConnectionStatus::TimedOut => AgentStatus::Timeout,
    }
}

/// The health of an agent. One that is still connecting is healthy.
fn health(status: &AgentStatus, lifecycle: &AgentLifecycle) -> AgentHealth {
    let reason = match (status, lifecycle) {
        (AgentStatus::Connecting | AgentStatus::Timeout | AgentStatus::Disconnected, AgentLifecycle::Off) => {
            "agent is not running"
        }
        (AgentStatus::Timeout, _) => "agent is taking too long to connect",
        (AgentStatus::Disconnected, _) => "agent has lost connection",
        (_, AgentLifecycle::StartError) => "agent startup script exited with an error",
        (
            _,
            AgentLifecycle::ShuttingDown | AgentLifecycle::ShutdownError | AgentLifecycle::ShutdownTimeout,
        ) => "agent is shutting down",
        _ => "",
    };
    AgentHealth { healthy: reason.is_empty(), reason: reason.to_owned() }
}

fn script(row: agents::Script) -> AgentScript {
    AgentScript {
        id: row.id,
        log_source_id: row.log_source_id,
        log_path: row.log_path,
        script: row.script,
        cron: row.cron,
        run_on_start: row.run_on_start,
        run_on_stop: row.run_on_stop,
        start_blocks_login: row.start_blocks_login,
        timeout: i64::from(row.timeout_seconds) * 1_000_000_000,
        display_name: row.display_name,
    }
}

fn app_view(row: agents::App) -> WorkspaceApp {
    let definition = row.definition;
    WorkspaceApp {
        id: row.id,
        url: definition.url,
        external: definition.external,
        slug: row.slug,
        display_name: definition.display_name,
        command: definition.command,
        icon: definition.icon,
        subdomain: definition.subdomain,
        // The names of the workspace and its owner are filled in later.
        subdomain_name: String::new(),
        sharing_level: definition.sharing_level.as_str().into(),
        healthcheck: AppHealthcheck {
            url: definition.healthcheck_url,
            interval: i64::from(definition.healthcheck_interval),
            threshold: i64::from(definition.healthcheck_threshold),
        },
        health: row.health.as_str().into(),
        group: definition.group,
        hidden: definition.hidden,
        open_in: definition.open_in.as_str().into(),
        tooltip: definition.tooltip,
        statuses: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_is_unhealthy_only_after_a_failure() {
        let check = |status, lifecycle, want| assert_eq!(health(&status, &lifecycle).healthy, want);
        check(AgentStatus::Connecting, AgentLifecycle::Created, true);
        check(AgentStatus::Connected, AgentLifecycle::Ready, true);
        check(AgentStatus::Timeout, AgentLifecycle::Created, false);
        check(AgentStatus::Disconnected, AgentLifecycle::Ready, false);
        check(AgentStatus::Connected, AgentLifecycle::StartError, false);
        check(AgentStatus::Disconnected, AgentLifecycle::Off, false);
    }
}
