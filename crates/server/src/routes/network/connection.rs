//! What a client needs to connect to an agent (agent 3.7).

use axum::extract::State;
use coder_api::deployment::AgentConnectionInfo;
use coder_domain::ids::AgentId;

use crate::context::App;
use crate::http::params::Id;
use crate::http::{AccessUrl, Caller, Error, Json, Result};
use crate::network::access::{find_place, may_connect};
use crate::network::derp_map;

/// `GET /workspaceagents/connection`
pub async fn any_agent(State(app): State<App>, _: Caller, url: AccessUrl) -> Json<AgentConnectionInfo> {
    Json(info(&app, &url))
}

/// `GET /workspaceagents/{workspaceagent}/connection`
pub async fn agent(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
    url: AccessUrl,
) -> Result<Json<AgentConnectionInfo>> {
    let found = find_place(&mut app.store.reader().await?, id).await?;
    let is_reachable = found.is_some_and(|(_, workspace)| may_connect(&caller.subject, &workspace));
    if is_reachable { Ok(Json(info(&app, &url))) } else { Err(Error::not_found()) }
}

fn info(app: &App, url: &AccessUrl) -> AgentConnectionInfo {
    let network = &app.config.tailnet;
    AgentConnectionInfo {
        derp_map: serde_json::to_value(derp_map::of(&app.config, url)).expect("texts and numbers are JSON"),
        derp_force_websockets: network.force_websockets,
        disable_direct_connections: network.block_direct,
        hostname_suffix: app.config.ssh.hostname_suffix.clone(),
    }
}
