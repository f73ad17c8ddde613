//! Clients report that a workspace is in use.

use axum::extract::{Request, State};
use coder_api::agents::WorkspaceUsage;
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use coder_store::workspaces::agent_connections;

use super::find;
use crate::context::App;
use crate::http::body::{self, PUBLIC_BYTES};
use crate::http::params::Id;
use crate::http::{Caller, Error, NoContent, Result};

/// What may be in use.
const APPS: [&str; 4] = ["jetbrains", "reconnecting-pty", "ssh", "vscode"];

/// `POST /workspaces/{workspace}/usage`: an empty body, or an agent and an app.
pub async fn usage(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    request: Request,
) -> Result<NoContent> {
    let mut tx = app.store.reader().await?;
    let workspace = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    drop(tx);
    let bytes = body::read(request, PUBLIC_BYTES).await?;
    let usage: WorkspaceUsage = if bytes.is_empty() {
        WorkspaceUsage::default()
    } else {
        serde_json::from_slice(&bytes)
            .map_err(|error| Error::bad_request("Request body must be valid JSON.").detail(error))?
    };
    match (usage.agent_id, usage.app_name.as_str()) {
        (None, "") => {}
        (None, _) => return Err(Error::invalid("agent_id", "It is needed with app_name.")),
        (Some(_), "") => return Err(Error::invalid("app_name", "It is needed with agent_id.")),
        (Some(_), name) if !APPS.contains(&name) => {
            return Err(Error::invalid("app_name", format!("It must be one of {}.", APPS.join(", "))));
        }
        (Some(agent), _) => {
            let place = agent_connections::find_place(&mut app.store.reader().await?, agent).await?;
            if place.is_none_or(|place| place.workspace_id != workspace.id) {
                return Err(Error::invalid("agent_id", "The workspace has no such agent."));
            }
        }
    }
    if !workspace.deleted {
        app.pending.used(workspace.id);
    }
    Ok(NoContent)
}
