//! The endpoint at which agents connect. The calls are in `agents/service.rs`.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_domain::agent::accept_version;
use coder_wire::ws::Socket;

use crate::agents::authenticate::AgentCaller;
use crate::agents::connection::Connection;
use crate::context::App;
use crate::http::params::Query;
use crate::http::upgrade;
use crate::http::{AccessUrl, Error, Result};

/// `GET /workspaceagents/me/rpc`
pub async fn rpc(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
    query: Query,
    url: AccessUrl,
    mut request: Request,
) -> Result<Response> {
    let version = accept_version(query.text("version"))
        .map_err(|error| Error::bad_request("Unknown or unsupported API version").field("version", error))?;
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let (response, connection) = upgrade.accept();
    let counted = app.metrics.socket(paths::AGENT_RPC);
    app.clone().lifecycle.spawn("agent connection", async move {
        let _counted = counted;
        match connection.await {
            Ok(connection) => Connection::new(app, identity, version, url).run(Socket::server(connection)).await,
            Err(error) => {
                tracing::debug!(%error, agent_id = %identity.agent_id, "the agent left before its connection began");
            }
        }
    });
    Ok(response)
}
