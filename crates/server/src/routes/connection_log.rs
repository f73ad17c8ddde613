//! Reading the connection log: the sessions that agents report. Who may read the audit log may read it.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::connection_log::{ConnectionLog, ConnectionLogResponse, SshSession};
use coder_api::organizations::MinimalOrganization;
use coder_domain::Timestamp;
use coder_store::organizations;
use coder_store::workspaces::connection_log::{self, ConnectionLogFilter, ListedSession};

use super::{audit, users};
use crate::context::App;
use crate::http::params::Query;
use crate::http::search::Search;
use crate::http::{Caller, Error, Json, Result};

const KEYS: &[&str] = &[
    "organization",
    "workspace_owner",
    "workspace_id",
    "type",
    "connection_id",
    "connected_after",
    "connected_before",
    "status",
];
/// Default and largest number of sessions.
const PAGE_SIZE: i64 = 100;
const LONGEST_PAGE: i64 = 1000;

/// `GET /connectionlog`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    query: Query,
) -> Result<Json<ConnectionLogResponse>> {
    query.only(&["q", "limit", "offset"])?;
    let page = query.page()?;
    let search = Search::parse(query.text("q"), "workspace_owner", KEYS)?;
    let mut tx = app.store.reader().await?;
    let organization_id = audit::organization(&app, &mut tx, &caller, search.get("organization")).await?;
    let owner_id = match search.get("workspace_owner") {
        Some(name) => Some(users::find::visible(&mut tx, &caller, name).await?.id),
        None => None,
    };
    let has_ended = match search.get("status") {
        None => None,
        Some("completed") => Some(true),
        Some("ongoing") => Some(false),
        Some(_) => {
            return Err(
                Error::bad_request("Invalid search query.").field("q", "status is ongoing or completed")
            );
        }
    };
    // Search strings are in lower case, which times are not.
    let instant = |key| -> Result<Option<Timestamp>> {
        let text = search.get(key).map(str::to_uppercase);
        let read = |text: String| {
            text.parse().map_err(|_| {
                Error::bad_request("Invalid search query.")
                    .field("q", format!("{key} is not a time in RFC 3339"))
            })
        };
        text.map(read).transpose()
    };
    let filter = ConnectionLogFilter {
        organization_id,
        owner_id,
        workspace_id: search.read("workspace_id")?,
        kind: search.get("type").map(str::to_owned),
        id: search.read("connection_id")?,
        since: instant("connected_after")?,
        until: instant("connected_before")?,
        has_ended,
    };
    let limit = if page.limit == 0 { PAGE_SIZE } else { page.limit.min(LONGEST_PAGE) };
    let count = connection_log::count(&mut tx, &filter).await?;
    let sessions = connection_log::page(&mut tx, &filter, limit, page.offset).await?;
    let places: HashMap<_, _> =
        organizations::list(&mut tx).await?.into_iter().map(|found| (found.id, found)).collect();
    let view = |session: ListedSession| {
        let place = places.get(&session.organization_id);
        let organization = place.map_or_else(MinimalOrganization::default, |found| MinimalOrganization {
            id: found.id,
            name: found.name.clone(),
            display_name: found.display_name.clone(),
            icon: found.icon.clone(),
        });
        one(session, organization)
    };
    Ok(Json(ConnectionLogResponse { connection_logs: sessions.into_iter().map(view).collect(), count }))
}

fn one(session: ListedSession, organization: MinimalOrganization) -> ConnectionLog {
    let exit_code = session.disconnected_at.map(|_| session.status_code);
    ConnectionLog {
        id: session.id,
        connect_time: session.connected_at,
        organization,
        workspace_owner_id: session.owner_id,
        workspace_owner_username: session.owner_username,
        workspace_id: session.workspace_id,
        workspace_name: session.workspace_name,
        agent_name: session.agent_name,
        ip: Some(session.ip).filter(|ip| !ip.is_empty()),
        kind: session.kind,
        ssh_info: Some(SshSession {
            connection_id: session.id,
            disconnect_time: session.disconnected_at,
            disconnect_reason: session.reason,
            exit_code,
        }),
    }
}
