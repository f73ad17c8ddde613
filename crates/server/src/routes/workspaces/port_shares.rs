//! Ports of a workspace that others may open.

use axum::extract::State;
use coder_api::agents::{DeletePortShare, PortShare, PortShares, UpsertPortShare};
use coder_domain::apps::{FIRST_PORT, SharingLevel};
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use coder_store::templates;
use coder_store::workspaces::port_shares;

use super::{find, latest_agents};
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, NoContent, Result};

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
    if !(i64::from(FIRST_PORT)..=65535).contains(&request.port) {
        return Err(Error::invalid("port", format!("It must be between {FIRST_PORT} and 65535.")));
    }
    if !["http", "https"].contains(&request.protocol.as_str()) {
        return Err(Error::invalid("protocol", "It must be http or https."));
    }
    let level: Option<SharingLevel> = request.share_level.parse().ok();
    let level = level
        .filter(|level| *level != SharingLevel::Owner)
        .ok_or_else(|| Error::invalid("share_level", "It must be organization, authenticated or public."))?;
    let template = templates::find(&mut tx, workspace.template_id).await?.ok_or_else(Error::not_found)?;
    let most = &template.settings.max_port_share_level;
    if most.parse().is_ok_and(|most: SharingLevel| level > most) {
        let detail = format!("The template allows at most the level {most:?}.");
        return Err(Error::invalid("share_level", detail));
    }
    let agents = latest_agents::list(&mut tx, workspace.id).await?;
    if !agents.iter().any(|agent| agent.name == request.agent_name) {
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
    // Whoever has the port open may not be allowed to any more.
    app.events.workspace_changed(workspace.id);
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
        Err(coder_store::Error::Stale { .. }) => return Err(Error::not_found()),
        other => other?,
    }
    drop(tx);
    app.events.workspace_changed(workspace.id);
    Ok(NoContent)
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
