//! Ports of a workspace that others may open.

use axum::extract::State;
use coder_api::agents::{DeletePortShare, PortShare, PortShares, UpsertPortShare};
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use coder_store::workspaces::{Workspace, agents, builds, port_shares, resources};
use coder_store::{Tx, templates};

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, NoContent, Result};

/// Lower ports are not proxied.
const FIRST_PORT: i64 = 9;
/// Levels, from the fewest people to the most.
const LEVELS: [&str; 4] = ["owner", "organization", "authenticated", "public"];

/// `GET /workspaces/{workspace}/port-share`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<PortShares>> {
    let mut tx = app.store.reader().await?;
    let workspace = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let shares = port_shares::list(&mut tx, workspace.id).await?;
    Ok(Json(PortShares { shares: shares.into_iter().map(view).collect() }))
}

/// `POST /workspaces/{workspace}/port-share`
pub async fn upsert(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<UpsertPortShare>,
) -> Result<Json<PortShare>> {
    let mut tx = app.store.reader().await?;
    let workspace = find::by_id(&mut tx, &caller, id, Action::Update).await?;
    if !(FIRST_PORT..=65535).contains(&request.port) {
        return Err(Error::invalid("port", format!("It must be between {FIRST_PORT} and 65535.")));
    }
    if !["http", "https"].contains(&request.protocol.as_str()) {
        return Err(Error::invalid("protocol", "It must be http or https."));
    }
    let rank = |level: &str| LEVELS.iter().position(|known| *known == level);
    let level = rank(&request.share_level).filter(|rank| *rank > 0);
    let level = level
        .ok_or_else(|| Error::invalid("share_level", "It must be organization, authenticated or public."))?;
    let template = templates::find(&mut tx, workspace.template_id).await?.ok_or_else(Error::not_found)?;
    let most = &template.settings.max_port_share_level;
    if rank(most).is_some_and(|most| level > most) {
        let detail = format!("The template allows at most the level {most:?}.");
        return Err(Error::invalid("share_level", detail));
    }
    if !has_agent(&mut tx, &workspace, &request.agent_name).await? {
        return Err(Error::invalid("agent_name", "The latest build of the workspace has no such agent."));
    }
    drop(tx);
    let share = port_shares::PortShare {
        workspace_id: workspace.id,
        agent_name: request.agent_name,
        port: request.port,
        share_level: request.share_level,
        protocol: request.protocol,
    };
    if !port_shares::upsert(&mut app.store.single().await?, &share).await? {
        return Err(Error::bad_request("The workspace shares too many ports."));
    }
    Ok(Json(view(share)))
}

/// `DELETE /workspaces/{workspace}/port-share`
pub async fn delete(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<DeletePortShare>,
) -> Result<NoContent> {
    let workspace = find::by_id(&mut app.store.reader().await?, &caller, id, Action::Update).await?;
    let mut tx = app.store.single().await?;
    match port_shares::delete(&mut tx, workspace.id, &request.agent_name, request.port).await {
        Err(coder_store::Error::Stale { .. }) => Err(Error::not_found()),
        other => other.map(|()| NoContent).map_err(Error::from),
    }
}

async fn has_agent(tx: &mut Tx, workspace: &Workspace, name: &str) -> Result<bool> {
    let Some(build) = builds::find_latest(tx, workspace.id).await? else { return Ok(false) };
    let made = resources::list(tx, &[build.job_id]).await?;
    let made: Vec<_> = made.into_iter().map(|resource| resource.id).collect();
    Ok(agents::list(tx, &made).await?.iter().any(|agent| agent.name == name))
}

fn view(row: port_shares::PortShare) -> PortShare {
    PortShare {
        workspace_id: row.workspace_id,
        agent_name: row.agent_name,
        port: row.port,
        share_level: row.share_level,
        protocol: row.protocol,
    }
}
