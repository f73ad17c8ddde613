//! Finds the app that a request names (agent 6.2).

use coder_domain::agent::ConnectionStatus;
use coder_domain::apps::{Port, SharingLevel};
use coder_domain::ids::UserId;
use coder_store::workspaces::agents::{self, Agent};
use coder_store::workspaces::{self, Workspace, port_shares};
use coder_store::{Error, Tx, templates, users};

use super::grant::{AppRequest, Method};
use crate::context::App;
use crate::routes::resources;
use crate::routes::workspaces::latest_agents;

/// What a request names.
pub(super) struct Found {
    pub(super) workspace: Workspace,
    pub(super) content: Content,
}

/// What there is in the workspace.
pub(super) enum Content {
    /// The workspace is stopped.
    Stopped,
    /// The workspace has no such app or agent.
    Nothing,
    App(Box<FoundApp>),
}

/// An app, or a port that is opened like one.
pub(super) struct FoundApp {
    pub(super) agent: Agent,
    pub(super) status: ConnectionStatus,
    pub(super) url: String,
    pub(super) level: SharingLevel,
    pub(super) cors_behavior: String,
}

/// The workspace and the app of a request; none when there is no such workspace.
pub(super) async fn find(app: &App, tx: &mut Tx, request: &AppRequest) -> Result<Option<Found>, Error> {
    let Some(owner) = find_user(tx, &request.username_or_id).await? else { return Ok(None) };
    let workspace = match request.workspace_name_or_id.parse() {
        Ok(id) => workspaces::find(tx, id).await?,
        Err(_) => workspaces::find_by_name(tx, owner, &request.workspace_name_or_id, false).await?,
    };
    let workspace = workspace.filter(|workspace| workspace.owner_id == owner && !workspace.deleted);
    let Some(workspace) = workspace else { return Ok(None) };
    let content = find_content(app, tx, request, &workspace).await?;
    Ok(Some(Found { workspace, content }))
}

async fn find_user(tx: &mut Tx, name: &str) -> Result<Option<UserId>, Error> {
    let found = match name.parse() {
        Ok(id) => users::find(tx, id).await?,
        Err(_) => users::find_by_username(tx, name).await?,
    };
    Ok(found.map(|user| user.id))
}

async fn find_content(
    app: &App,
    tx: &mut Tx,
    request: &AppRequest,
    workspace: &Workspace,
) -> Result<Content, Error> {
    let Some(agents) = latest_agents::list_started(tx, workspace.id).await? else {
        return Ok(Content::Stopped);
    };
    let Some(template) = templates::find(tx, workspace.template_id).await? else {
        return Ok(Content::Nothing);
    };
    let port = Port::parse(&request.app_slug_or_port).filter(|_| request.access_method == Method::Subdomain);
    let most = template.settings.max_port_share_level.parse().unwrap_or(SharingLevel::Owner);
    let found = match port {
        Some(port) => find_port(tx, request, workspace, agents, port, most).await?,
        None => find_app(tx, request, agents, most).await?,
    };
    let Some((agent, url, level)) = found else { return Ok(Content::Nothing) };
    let (status, _) = resources::connection(&agent, app.now());
    let cors_behavior = template.settings.cors_behavior;
    Ok(Content::App(Box::new(FoundApp { agent, status, url, level, cors_behavior })))
}

type FoundUrl = (Agent, String, SharingLevel);

async fn find_port(
    tx: &mut Tx,
    request: &AppRequest,
    workspace: &Workspace,
    mut agents: Vec<Agent>,
    port: Port,
    most: SharingLevel,
) -> Result<Option<FoundUrl>, Error> {
    let wanted = &request.agent_name_or_id;
    if !wanted.is_empty() {
        agents.retain(|agent| is_named(agent, wanted));
    }
    // Without a name there must be one agent only.
    let (Some(agent), true) = (agents.pop(), agents.is_empty()) else { return Ok(None) };
    let shares = port_shares::list(tx, workspace.id).await?;
    let is_this = |share: &&port_shares::PortShare| {
        share.port == i64::from(port.number) && share.agent_name.eq_ignore_ascii_case(&agent.name)
    };
    let level = shares.iter().find(is_this).and_then(|share| share.share_level.parse().ok());
    // The template's bound may be lower than when the port was shared.
    let level = level.unwrap_or(SharingLevel::Owner).min(most);
    Ok(Some((agent, port.url(), level)))
}

async fn find_app(
    tx: &mut Tx,
    request: &AppRequest,
    agents: Vec<Agent>,
    most: SharingLevel,
) -> Result<Option<FoundUrl>, Error> {
    let ids: Vec<_> = agents.iter().map(|agent| agent.id).collect();
    let apps = agents::list_apps(tx, &ids).await?;
    let has_url = |app: &&agents::App| !app.definition.external && !app.definition.url.is_empty();
    let apps: Vec<_> =
        apps.iter().filter(|app| app.slug == request.app_slug_or_port).filter(has_url).collect();
    let on_agent = |agent: &Agent| apps.iter().find(|app| app.agent_id == agent.id);
    let wanted = &request.agent_name_or_id;
    let named = agents.iter().find(|agent| is_named(agent, wanted) && on_agent(agent).is_some());
    // Old host names have an agent that does not count; in paths it does.
    let is_bound = !wanted.is_empty() && request.access_method == Method::Path;
    let agent = named.or_else(|| agents.iter().find(|agent| !is_bound && on_agent(agent).is_some()));
    let Some((agent, app)) = agent.and_then(|agent| Some((agent, on_agent(agent)?))) else { return Ok(None) };
    let level: SharingLevel = app.definition.sharing_level.parse().unwrap_or(SharingLevel::Owner);
    // Apps of a sub-agent do not come from the template: a user of the workspace made them, as with shared ports.
    let level = if agent.parent_id.is_some() { level.min(most) } else { level };
    Ok(Some((agent.clone(), app.definition.url.clone(), level)))
}

fn is_named(agent: &Agent, wanted: &str) -> bool {
    agent.name.eq_ignore_ascii_case(wanted) || wanted.parse().is_ok_and(|id| agent.id == id)
}
