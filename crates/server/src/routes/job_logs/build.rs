//! The log of a build.

use axum::extract::{Request, State};
use axum::response::Response;
use coder_domain::ids::BuildId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{builds, workspaces};

use super::{Wanted, answer};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::{Caller, Error, Result};

/// `GET /workspacebuilds/{build}/logs`
pub async fn build(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
    query: Query,
    request: Request,
) -> Result<Response> {
    let wanted = Wanted::read(&query)?;
    let mut tx = app.store.reader().await?;
    let build = builds::find(&mut tx, id).await?.ok_or_else(Error::not_found)?;
    let workspace = workspaces::find(&mut tx, build.workspace_id).await?.ok_or_else(Error::not_found)?;
    drop(tx);
    let object =
        Object::in_organization(Resource::Workspace, workspace.organization_id).owned_by(workspace.owner_id);
    caller.require_visible(Action::Read, object)?;
    answer(app, build.job_id, wanted, request).await
}
