//! The ports of a workspace that people may want to open, for lists of ports.

use std::collections::HashSet;
use std::time::Duration;

use axum::extract::State;
use coder_api::agents::ListeningPorts;
use coder_domain::agent::ConnectionStatus;
use coder_domain::apps::is_worth_showing;
use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;
use coder_store::workspaces::agents;
use http::StatusCode;
use url::Url;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};
use crate::network::agent_api;
use crate::routes::resources;

/// How long the agent may take.
const AGENT_TIMEOUT: Duration = Duration::from_secs(30);

/// `GET /workspaceagents/{agent}/listening-ports`
pub async fn listening_ports(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
) -> Result<Json<ListeningPorts>> {
    let mut tx = app.store.reader().await?;
    let (agent, _, workspace) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    if resources::connection(&agent, app.now()).0 != ConnectionStatus::Connected {
        return Err(Error::bad_request("The agent is not connected.")
            .detail("Start the workspace, or wait until its agent has connected."));
    }
    let apps = agents::list_apps(&mut tx, &[id]).await?;
    drop(tx);
    let failed = |detail: String| {
        Error::new(StatusCode::BAD_GATEWAY, "The ports of the workspace could not be listed.").detail(detail)
    };
    let asked = agent_api::listening_ports(&app.network.server_node, workspace.owner_id, id);
    let answer = tokio::time::timeout(AGENT_TIMEOUT, asked).await;
    let mut found = answer
        .map_err(|_| failed(format!("The agent did not answer within {} s.", AGENT_TIMEOUT.as_secs())))?
        .map_err(|error| failed(error.to_string()))?;
    // Those are shown as apps.
    let own: HashSet<_> = apps
        .iter()
        .filter(|app| !app.definition.external)
        .filter_map(|app| Url::parse(&app.definition.url).ok()?.port_or_known_default())
        .collect();
    found.ports.retain(|port| is_worth_showing(port.port) && !own.contains(&port.port));
    Ok(Json(found))
}
