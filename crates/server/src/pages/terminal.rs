//! The web terminal of a workspace: `/@user/workspace[.agent]/terminal`.

use askama::Template;
use axum::response::Response;
use coder_domain::apps::PathAddress;
use coder_domain::ids::AgentId;
use coder_store::workspaces::{self, agents};
use coder_store::{Tx, users};
use http::{Method, StatusCode};

use super::render::render_with;
use super::visitor::visitor;
use crate::apps::{Head, limit_stranger, sign_in};
use crate::context::App;
use crate::http::Error;
use crate::http::origin::Origin;
use crate::http::params::Query;
use crate::network::access::may_connect;
use crate::routes::workspaces::latest_agents;

/// What the page may load: its own files and the WebSocket. xterm.js writes styles into the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// Longest command of an address.
const MAX_COMMAND_BYTES: usize = 8 << 10;

#[derive(Template)]
#[template(path = "terminal.html")]
struct TerminalPage<'a> {
    owner: &'a str,
    workspace: &'a str,
    agent: AgentId,
    command: &'a str,
    /// Whether the person is asked before the command runs.
    ask: bool,
}

/// Shows the page to those who may connect to the workspace.
pub async fn terminal(app: &App, address: &PathAddress<'_>, request: &Head) -> Result<Response, Error> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Err(Error::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed."));
    }
    let origin = Origin::of(request.extensions(), request.headers());
    let Some(visitor) = visitor(app, request.headers(), origin).await else {
        if let Some(refused) = limit_stranger(app, request) {
            return Ok(refused);
        }
        let here = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        return Ok(sign_in::to_login(here));
    };
    let query = Query::of(request.uri());
    let mut tx = app.store.reader().await?;
    let owner = match address.user.parse() {
        Ok(id) => users::find(&mut tx, id).await?,
        Err(_) => users::find_by_username(&mut tx, address.user).await?,
    };
    let owner = owner.ok_or_else(Error::not_found)?;
    let workspace = match address.workspace.parse() {
        Ok(id) => workspaces::find(&mut tx, id).await?,
        Err(_) => workspaces::find_by_name(&mut tx, owner.id, address.workspace, false).await?,
    };
    let workspace = workspace.filter(|workspace| workspace.owner_id == owner.id && !workspace.deleted);
    let workspace = workspace.filter(|workspace| may_connect(&visitor.subject, workspace));
    let workspace = workspace.ok_or_else(Error::not_found)?;
    let Some(agents) = latest_agents::list_started(&mut tx, workspace.id).await? else {
        return Err(Error::bad_request("The workspace is stopped.").detail("Start it to open a terminal."));
    };
    let mut agents = agents.into_iter();
    let agent = match address.agent {
        "" => agents.next(),
        wanted => agents.find(|agent| agent.name.eq_ignore_ascii_case(wanted)),
    };
    let agent = agent.ok_or_else(|| {
        Error::new(StatusCode::NOT_FOUND, "The workspace has no such agent.")
            .detail("It may still be starting; try again in a moment.")
    })?;
    // The template's author chose the command of an app. Any other command comes from the person who made the address.
    let of_app = app_command(&mut tx, agent.id, query.text("app")).await?;
    let ask = of_app.is_none() && !query.text("command").is_empty();
    let command = of_app.unwrap_or_else(|| query.text("command").to_owned());
    if command.len() > MAX_COMMAND_BYTES {
        return Err(Error::bad_request("The command is too long."));
    }
    let page = TerminalPage {
        owner: &owner.username,
        workspace: &workspace.name,
        agent: agent.id,
        command: &command,
        ask,
    };
    render_with(StatusCode::OK, &page, POLICY)
}

/// The command of an app of the template.
async fn app_command(tx: &mut Tx, agent: AgentId, slug: &str) -> Result<Option<String>, Error> {
    if slug.is_empty() {
        return Ok(None);
    }
    let apps = agents::list_apps(tx, &[agent]).await?;
    let app = apps.into_iter().find(|app| app.slug == slug && !app.definition.command.is_empty());
    let app = app.ok_or_else(|| {
        Error::new(StatusCode::NOT_FOUND, "The agent has no app of this name that runs a command.")
    })?;
    Ok(Some(app.definition.command))
}
