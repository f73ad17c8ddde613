//! A workspace, watched: at once, and after each change of it, its build, its job or its agents (http-api 10.3, 10.4).

use axum::extract::{Request, State};
use axum::response::Response;
use coder_api::paths;
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use coder_store::workspaces as rows;

use super::{find, view};
use crate::context::App;
use crate::events::{Subscription, Topic};
use crate::http::params::Id;
use crate::http::watch::{self, View, Watch};
use crate::http::{Caller, Error, Result};
use crate::network::reading::Reading;

struct WatchedWorkspace {
    app: App,
    caller: Caller,
    workspace: WorkspaceId,
}

impl Watch for WatchedWorkspace {
    async fn read(&mut self) -> Result<View> {
        let mut tx = self.app.store.reader().await?;
        let row = rows::find(&mut tx, self.workspace).await?.filter(|row| !row.deleted);
        let Some(row) = row else { return Ok(View::Gone) };
        let shown = view::load_one(&self.app, &mut tx, &self.caller, row).await?;
        let text =
            serde_json::to_string(&shown).map_err(|error| Error::internal("Internal error.", error))?;
        Ok(View::Json(text))
    }
}

/// `GET /workspaces/{workspace}/watch`
pub async fn watch(State(app): State<App>, caller: Caller, Id(id): Id<WorkspaceId>) -> Result<Response> {
    let (reading, watched, changes) = begin(&app, caller, id).await?;
    watch::events(&app, Some(reading), watched, changes)
}

/// `GET /workspaces/{workspace}/watch-ws`
pub async fn watch_ws(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    request: Request,
) -> Result<Response> {
    let (reading, watched, changes) = begin(&app, caller, id).await?;
    watch::socket(&app, reading, watched, changes, paths::WORKSPACE_WATCH_WS, request)
}

async fn begin(
    app: &App,
    caller: Caller,
    id: WorkspaceId,
) -> Result<(Reading, WatchedWorkspace, Subscription)> {
    let changes = app.events.subscribe(Topic::Workspace(id));
    let reading = Reading::begin(app, &caller).await?;
    find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?;
    Ok((reading, WatchedWorkspace { app: app.clone(), caller, workspace: id }, changes))
}
