//! Starting, stopping and deleting a workspace.

use axum::extract::State;
use coder_api::builds::{CreateWorkspaceBuildRequest, WorkspaceBuild};
use coder_domain::Timestamp;
use coder_domain::build::{BuildReason, Transition};
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::Action;
use coder_store::workspaces::Workspace;
use coder_store::workspaces::build_inputs::{self, BuildInputs, PreviousBuild};
use coder_store::{Tx, transaction};

use super::insert::{self, BuildPlan, BuildRequest, InsertError, InsertedBuild, Requester};
use super::view::{self, Detail};
use crate::context::App;
use crate::http::body::{Created, STATE_BYTES};
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::{announce, workspaces};

/// `POST /workspaces/{workspace}/builds`
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
    Json(request): Json<CreateWorkspaceBuildRequest, STATE_BYTES>,
) -> Result<Created<WorkspaceBuild>> {
    let reason = request.reason.unwrap_or_default();
    if reason != BuildReason::Initiator && !reason.may_be_requested() {
        return Err(Error::invalid("reason", "Only clients' own reasons may be given."));
    }
    let debug = match request.log_level.as_str() {
        "" => false,
        "debug" => true,
        _ => return Err(Error::invalid("log_level", "The log level must be \"debug\" or empty.")),
    };
    if request.dry_run {
        return Err(Error::invalid("dry_run", "Use the template version's dry run."));
    }
    let build_request = BuildRequest {
        version: request.template_version_id,
        preset: request.template_version_preset_id,
        parameters: request.rich_parameter_values,
        state: Some(request.provisioner_state.0).filter(|state| !state.is_empty()),
        orphan: request.orphan,
        reason,
        debug,
        ..BuildRequest::new(request.transition)
    };
    let now = app.now();
    let (inserted, workspace, previous) =
        insert::until_plan_fits(|| plan_and_insert(&app, &caller, id, &build_request, now)).await?;
    after(&app, &inserted);
    let mut tx = app.store.reader().await?;
    if inserted.finished {
        return Ok(Created(view::load_id(&app, &mut tx, inserted.build.id, Detail::Fresh).await?));
    }
    Ok(Created(view::inserted(&app, &mut tx, &caller, inserted, &workspace, previous).await?))
}

async fn plan_and_insert(
    app: &App,
    caller: &Caller,
    id: WorkspaceId,
    request: &BuildRequest,
    now: Timestamp,
) -> std::result::Result<(InsertedBuild, Workspace, PreviousBuild), InsertError> {
    let on = inputs(&mut app.store.reader().await?, caller, id, request.transition).await?;
    let on = (&on.workspace, &on.template, &on.previous);
    let requester = Requester::Person(caller);
    let plan = BuildPlan::new(app, &requester, on, request, now).await?;
    transaction!(app.store, InsertError, |tx| {
        let BuildInputs { workspace, template, previous } =
            inputs(tx, caller, id, request.transition).await?;
        plan.require_fit(&template, &previous)?;
        let inserted =
            insert::insert(app, tx, &requester, (&workspace, &previous), request, &plan, now).await?;
        Ok((inserted, workspace, previous))
    })
}

/// The inputs of a build that the caller may request.
async fn inputs(
    tx: &mut Tx,
    caller: &Caller,
    id: WorkspaceId,
    transition: Transition,
) -> Result<BuildInputs> {
    let inputs = build_inputs::find(tx, id).await?.ok_or_else(Error::not_found)?;
    let action = match transition {
        Transition::Start => Action::Start,
        Transition::Stop => Action::Stop,
        Transition::Delete => Action::Delete,
    };
    caller.require_visible(action, workspaces::find::object(&inputs.workspace))?;
    Ok(inputs)
}

/// Wakes daemons and followers.
pub fn after(app: &App, inserted: &InsertedBuild) {
    if inserted.finished {
        announce::job_changed(app, inserted.job.id);
    } else {
        announce::job_waiting(app, &inserted.job);
    }
    announce::workspace_changed(app, inserted.build.workspace_id);
}
