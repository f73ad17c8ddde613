//! The builds of a workspace, newest first.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::builds::WorkspaceBuild;
use coder_domain::ids::{BuildId, WorkspaceId};
use coder_domain::rbac::Action;
use coder_store::workspaces::builds;

use super::view;
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::workspaces;

/// `GET /workspaces/{workspace}/builds`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    query: Query,
) -> Result<Json<Vec<WorkspaceBuild>>> {
    let page = query.page()?;
    let since = query.read("since")?;
    let mut tx = app.store.reader().await?;
    let workspace = workspaces::find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let after = page.after.map(BuildId);
    if let Some(after) = after
        && builds::find(&mut tx, after).await?.is_none_or(|found| found.workspace_id != id)
    {
        return Err(Error::bad_request(format!("Record at \"after_id\" ({after}) does not exist.")));
    }
    let page = builds::BuildPage { since, after, limit: page.limit, offset: page.offset };
    let rows = builds::list(&mut tx, id, page).await?;
    let owners = HashMap::from([(workspace.id, workspace)]);
    Ok(Json(view::load(&app, &mut tx, &rows, &owners, view::Detail::Plain).await?))
}
