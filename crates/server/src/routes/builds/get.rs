//! One build, by id or by number.

use axum::extract::State;
use coder_api::builds::WorkspaceBuild;
use coder_domain::ids::BuildId;
use coder_domain::rbac::Action;
use coder_store::workspaces::builds;

use super::{find, view};
use crate::context::App;
use crate::http::params::{Id, Names, Query};
use crate::http::{Caller, Error, Json, Result};
use crate::routes::workspaces;

/// `GET /workspacebuilds/{build}`
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
) -> Result<Json<WorkspaceBuild>> {
    let mut tx = app.store.reader().await?;
    let (build, workspace) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(view::load_one(&app, &mut tx, build, workspace, view::Detail::Plain).await?))
}

/// `GET /users/{user}/workspace/{workspace}/builds/{number}`
pub async fn by_number(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<WorkspaceBuild>> {
    let [user, workspace, number] = names.take()?;
    let number: i64 = number.parse().map_err(|_| {
        Error::bad_request("Failed to parse build number as integer.")
            .detail(format!("{number:?} is not an integer."))
    })?;
    let mut tx = app.store.reader().await?;
    let deleted = query.flag("include_deleted")?;
    let workspace = workspaces::find::by_name(&mut tx, &caller, &user, &workspace, deleted).await?;
    let build = builds::find_by_number(&mut tx, workspace.id, number).await?.ok_or_else(Error::not_found)?;
    Ok(Json(view::load_one(&app, &mut tx, build, workspace, view::Detail::Plain).await?))
}
