//! One agent.

use axum::extract::State;
use coder_api::resources::WorkspaceAgent;
use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Json, Result};
use crate::routes::resources;

/// `GET /workspaceagents/{agent}`
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
) -> Result<Json<WorkspaceAgent>> {
    let mut tx = app.store.reader().await?;
    let (agent, ..) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(resources::of_agent(&app, &mut tx, agent).await?))
}
