//! The parameters, resources and timings of a build.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::agents::{AgentConnectionTiming, AgentScriptTiming};
use coder_api::builds::{ProvisionerTiming, WorkspaceBuildParameter, WorkspaceBuildTimings};
use coder_api::resources::WorkspaceResource;
use coder_domain::ids::{BuildId, JobId, WorkspaceId};
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::jobs::timings as store;
use coder_store::workspaces::agents::{self, Agent};
use coder_store::workspaces::{agent_reports, builds, resources};

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
    let made: Vec<_> = resources::list(tx, &[job_id]).await?.into_iter().map(|row| row.id).collect();
    let agents: HashMap<_, _> = agents::list(tx, &made).await?.into_iter().map(|row| (row.id, row)).collect();
    let ids: Vec<_> = agents.keys().copied().collect();
    let runs = agent_reports::list_script_timings(tx, &ids).await?;
    let script = |row: agent_reports::ScriptTiming| {
        let agent = agents.get(&row.agent_id)?;
        let script = agent.definition.scripts.iter().find(|script| script.id == row.script_id)?;
        Some(AgentScriptTiming {
            started_at: row.started_at,
            ended_at: row.ended_at,
            exit_code: row.exit_code,
            stage: row.stage,
            status: row.status,
            display_name: script.display_name.clone(),
            workspace_agent_id: agent.id.to_string(),
            workspace_agent_name: agent.name.clone(),
        })
    };
    let connection = |agent: &Agent| {
        Some(AgentConnectionTiming {
            started_at: agent.created_at,
            ended_at: agent.first_connected_at?,
            stage: "connect".to_owned(),
            workspace_agent_id: agent.id.to_string(),
            workspace_agent_name: agent.name.clone(),
        })
    };
    let mut agent_connection_timings: Vec<_> = agents.values().filter_map(connection).collect();
    agent_connection_timings.sort_by(|a, b| a.workspace_agent_id.cmp(&b.workspace_agent_id));
    Ok(WorkspaceBuildTimings {
        provisioner_timings,
        agent_script_timings: runs.into_iter().filter_map(script).collect(),
        agent_connection_timings,
    })
}
