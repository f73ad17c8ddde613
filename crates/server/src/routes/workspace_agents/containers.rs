//! The containers in a workspace. This server knows of none: development containers are agents of their own.

use axum::extract::State;
use coder_api::agents::AgentContainers;
use coder_domain::agent::ConnectionStatus;
use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::resources;

/// `GET /workspaceagents/{agent}/containers`
pub async fn containers(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
) -> Result<Json<AgentContainers>> {
    let (agent, ..) = find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?;
    if resources::connection(&agent, app.now()).0 != ConnectionStatus::Connected {
        return Err(Error::bad_request("The agent is not connected.")
            .detail("Start the workspace, or wait until its agent has connected."));
    }
    Ok(Json(AgentContainers::default()))
}
