//! One workspace, by id or by name.

use axum::extract::State;
use coder_api::workspaces::Workspace;
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use http::StatusCode;

use super::{find, view};
use crate::context::App;
use crate::http::params::{Id, Names, Query};
use crate::http::{Caller, Error, Json, Result};

/// `GET /workspaces/{workspace}`
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    query: Query,
) -> Result<Json<Workspace>> {
    let include_deleted = query.flag("include_deleted")?;
    let mut tx = app.store.reader().await?;
    let workspace = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    if workspace.deleted && !include_deleted {
        return Err(Error::new(StatusCode::GONE, format!("Workspace {id} was deleted."))
            .detail("Add include_deleted=true to see it."));
    }
    Ok(Json(view::load_one(&app, &mut tx, &caller, workspace).await?))
}

/// `GET /users/{user}/workspace/{workspace}`
pub async fn by_name(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<Workspace>> {
    let [user, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let workspace = find::by_name(&mut tx, &caller, &user, &name, query.flag("include_deleted")?).await?;
    Ok(Json(view::load_one(&app, &mut tx, &caller, workspace).await?))
}
