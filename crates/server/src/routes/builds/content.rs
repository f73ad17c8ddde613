//! The parameters, resources and timings of a build.

use axum::extract::State;
use coder_api::builds::{ProvisionerTiming, WorkspaceBuildParameter, WorkspaceBuildTimings};
use coder_api::resources::WorkspaceResource;
use coder_domain::ids::{BuildId, JobId, WorkspaceId};
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::jobs::timings as store;
use coder_store::workspaces::builds;

use super::find;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::{resources as shown, workspaces};

/// `GET /workspacebuilds/{build}/parameters`
pub async fn parameters(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
) -> Result<Json<Vec<WorkspaceBuildParameter>>> {
    let mut tx = app.store.reader().await?;
    find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let values = builds::list_parameters(&mut tx, id).await?;
    Ok(Json(values.into_iter().map(|(name, value)| WorkspaceBuildParameter { name, value }).collect()))
}

/// `GET /workspacebuilds/{build}/resources`
pub async fn resources(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
) -> Result<Json<Vec<WorkspaceResource>>> {
    let mut tx = app.store.reader().await?;
    let (build, _) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(shown::of_job(&app, &mut tx, build.job_id).await?))
}

/// `GET /workspacebuilds/{build}/timings`
pub async fn timings(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<BuildId>,
) -> Result<Json<WorkspaceBuildTimings>> {
    let mut tx = app.store.reader().await?;
    let (build, _) = find::by_id(&mut tx, &caller, id, Action::Read).await?;
    Ok(Json(of_job(&mut tx, build.job_id).await?))
}

/// `GET /workspaces/{workspace}/timings`
pub async fn latest_timings(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<WorkspaceId>,
) -> Result<Json<WorkspaceBuildTimings>> {
    let mut tx = app.store.reader().await?;
    let workspace = workspaces::find::by_id(&mut tx, &caller, id, Action::Read).await?;
    let latest = builds::find_latest(&mut tx, workspace.id).await?.ok_or_else(Error::not_found)?;
    Ok(Json(of_job(&mut tx, latest.job_id).await?))
}

/// Agents do not report here yet, so their lists stay empty.
async fn of_job(tx: &mut Tx, job_id: JobId) -> Result<WorkspaceBuildTimings> {
    let view = |row: store::Timing| ProvisionerTiming {
        job_id,
        started_at: row.started_at,
        ended_at: row.ended_at,
        stage: row.stage,
        source: row.source,
        action: row.action,
        resource: row.resource,
    };
    let provisioner_timings = store::list(tx, job_id).await?.into_iter().map(view).collect();
    Ok(WorkspaceBuildTimings { provisioner_timings, ..WorkspaceBuildTimings::default() })
}
