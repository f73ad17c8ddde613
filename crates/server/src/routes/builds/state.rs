//! The Terraform state of a build. It needs the right to change the template (BLD-7).

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::builds::UpdateBuildStateRequest;
use coder_domain::ids::BuildId;
use coder_domain::rbac::Action;
use coder_store::workspaces::builds::{self, Build};
use coder_store::workspaces::{self, Workspace};
use coder_store::{Tx, jobs, transaction};
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::body::STATE_BYTES;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::routes::templates;

/// `GET /workspacebuilds/{build}/state`
pub async fn get(State(app): State<App>, caller: Caller, Id(id): Id<BuildId>) -> Result<Response> {
    let (build, _) = find(&mut app.store.reader().await?, &caller, id).await?;
    // Decrypting a state takes several copies in memory.
    let _place = app.memory.work_place(caller.user.id).await?;
    let state = builds::find_state(&mut app.store.reader().await?, build.id).await?.unwrap_or_default();
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(([kind, (header::CACHE_CONTROL, HeaderValue::from_static("no-store"))], state).into_response())
}

/// `PUT /workspacebuilds/{build}/state`
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
    Json(request): Json<UpdateBuildStateRequest, STATE_BYTES>,
) -> Result<NoContent> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let (build, workspace) = find(tx, &caller, id).await?;
        if jobs::get(tx, build.job_id).await?.completed_at.is_none() {
            return Err(Error::conflict(
                "The build's job has not ended, its state will be replaced by the result.",
            ));
        }
        builds::update_state(tx, build.id, request.state.0.clone()).await?;
        Event::new(Verb::Write, Kind::WorkspaceBuild, build.id.0, workspace.name)
            .in_organization(workspace.organization_id)
            .secret("provisioner_state")
            .note("workspace_id", workspace.id.to_string())
            .note("build_number", build.build_number.to_string())
            .note("build_reason", build.reason.as_str())
            .status(StatusCode::NO_CONTENT)
            .by(tx, &caller, now)
            .await?;
        Ok(())
    })?;
    Ok(NoContent)
}

/// 404 without the right to change the template: the state contains secrets.
async fn find(tx: &mut Tx, caller: &Caller, id: BuildId) -> Result<(Build, Workspace)> {
    let build = builds::find(tx, id).await?.ok_or_else(Error::not_found)?;
    let workspace = workspaces::find(tx, build.workspace_id).await?.ok_or_else(Error::not_found)?;
    let template = templates::find::object(workspace.organization_id).with_id(workspace.template_id.0);
    if caller.may(Action::Update, template) { Ok((build, workspace)) } else { Err(Error::not_found()) }
}
