//! Users' connections to the coordinator: for one agent, and for all agents of the own workspaces (agent 3.7).

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_domain::ids::AgentId;
use coder_wire::ws::Socket;
use http::StatusCode;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{AccessUrl, Caller, Error, Result, upgrade};
use crate::memory;
use crate::network::access::{find_place, may_connect};
use crate::network::tailnet_service::TailnetService;
use crate::network::user_connections::{Target, UserConnection};
use crate::network::{revoke, workspace_updates};

/// The newest minor version of the Agent and Tailnet services, whose major version is 2 (agent 3.7).
const NEWEST_MINOR: u32 = 7;

/// `GET /workspaceagents/{workspaceagent}/coordinate`
pub async fn coordinate(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
    query: Query,
    url: AccessUrl,
    request: Request,
) -> Result<Response> {
    let found = find_place(&mut app.store.reader().await?, id).await?;
    if !found.is_some_and(|(_, workspace)| may_connect(&caller.subject, &workspace)) {
        return Err(Error::not_found());
    }
    // Clients that name no version speak 1.0.
    check_version(query.get("version").unwrap_or("1.0"))?;
    let peer = peer_id(&app, &caller, &query)?;
    let connection = user_connection(&caller, Target::Agent(id));
    let revoked = connection.revoked.clone();
    let service = TailnetService::of_user(app.clone(), caller.user.id, peer, id, &url, revoked);
    connect(app, paths::AGENT_COORDINATE, connection, service, request).await
}

/// `GET /tailnet`
pub async fn tailnet(
    State(app): State<App>,
    caller: Caller,
    query: Query,
    url: AccessUrl,
    request: Request,
) -> Result<Response> {
    check_version(query.get("version").unwrap_or("2.0"))?;
    let peer = peer_id(&app, &caller, &query)?;
    let user = caller.user.id;
    let reachable = workspace_updates::reachable(&app, Arc::clone(&caller.subject)).await?;
    let connection = user_connection(&caller, Target::OwnAgents);
    let revoked = connection.revoked.clone();
    let service = TailnetService::of_all_workspaces(app.clone(), user, peer, reachable, &url, revoked);
    connect(app, paths::TAILNET, connection, service, request).await
}

/// 400 unless the server speaks this version, `2.0` to `2.7`.
fn check_version(text: &str) -> Result<()> {
    let unknown =
        |detail: String| Error::bad_request("Unknown or unsupported API version").field("version", detail);
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
    let parsed = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    match parsed {
        None => Err(unknown(format!("{text:?} is not of the form major.minor"))),
        Some((2, minor)) if minor <= NEWEST_MINOR => Ok(()),
        Some(_) => Err(unknown(format!("the server speaks versions 2.0 to 2.{NEWEST_MINOR}, not {text}"))),
    }
}

/// The peer id of the resume token, or a new one.
fn peer_id(app: &App, caller: &Caller, query: &Query) -> Result<Uuid> {
    let Some(token) = query.get("resume_token").filter(|token| !token.is_empty()) else {
        return Ok(Uuid::new_v4());
    };
    let read = app.network.resume_tokens.read(token, caller.user.id, app.now());
    let resumed = read.map_err(|error| {
        Error::unauthorized("Invalid resume token").field("resume_token", error.to_string())
    });
    Ok(resumed?.unwrap_or_else(Uuid::new_v4))
}

fn user_connection(caller: &Caller, target: Target) -> UserConnection {
    UserConnection {
        user: caller.user.id,
        token: Some(caller.key.id.as_str().into()),
        target,
        revoked: CancellationToken::new(),
    }
}

async fn connect(
    app: App,
    path: &'static str,
    connection: UserConnection,
    service: TailnetService,
    mut request: Request,
) -> Result<Response> {
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let registration = app.network.users.add(connection.clone()).ok_or_else(|| {
        Error::new(StatusCode::TOO_MANY_REQUESTS, "You have too many connections to workspaces.")
            .detail("Close some of them, or wait until lost ones have ended.")
    })?;
    // From here on the end of the rights ends the connection. They may have ended since the request was authenticated.
    if !revoke::is_allowed(&app, &connection).await? {
        return Err(Error::not_found());
    }
    let holder = memory::of(&request).cloned();
    let holder = holder.unwrap_or_else(|| app.memory.holder(connection.user.0.as_u128()));
    let (response, upgraded) = upgrade.accept();
    let counted = app.metrics.socket(path);
    app.lifecycle.spawn("user's coordination", async move {
        let _held = (registration, counted);
        match upgraded.await {
            Ok(io) => Arc::new(service).run(Socket::server(io), &holder.connection()).await,
            Err(error) => tracing::debug!(%error, "the client left before its connection began"),
        }
    });
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_from_2_0_to_2_7_are_served() {
        for version in ["2.0", "2.3", "2.7"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["1.0", "2.8", "3.0", "2", "", "2.", ".0", "2.0.1", "a.b", "+2.0", "2.-1"] {
            assert_eq!(check_version(version).unwrap_err().status(), StatusCode::BAD_REQUEST, "{version}");
        }
    }
}
