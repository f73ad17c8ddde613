//! A workspace build: start, stop or delete (wire-protocol 7.2).

use bytes::Bytes;
use coder_wire::messages::provisioner as sdk;
use coder_wire::messages::provisionerd as pb;
use sdk::{LogLevel, WorkspaceTransition};

use super::{JobFailure, JobResult, PhaseContext, metadata_of};
use crate::terraform::command::environment::StepInput;
use crate::terraform::steps::{PlanRequest, StepError};

const PLAN_STAGE: &str = "Planning Infrastructure";
const QUOTA_STAGE: &str = "Commit quota";

pub(super) async fn run(
    mut phase: PhaseContext<'_>,
    build: &pb::acquired_job::WorkspaceBuild,
    archive: Bytes,
) -> Result<JobResult, JobFailure> {
    let metadata = metadata_of(build.metadata.as_ref())?;
    let transition = metadata.workspace_transition();
    let empty_arm =
        |message: String| JobFailure::of_build(message, pb::failed_job::WorkspaceBuild::default());
    let modules = phase.module_files(metadata).await.map_err(empty_arm)?;

    let initialized = phase.steps.init(archive, modules, false).await.map_err(|error| {
        // Nothing was changed, so the job's initial state is still valid.
        failure(StepError { state: build.state.clone(), ..error }, Vec::new())
    })?;
    let mut timings = initialized.timings;

    let input = StepInput {
        metadata,
        parameters: &build.rich_parameter_values,
        previous_parameters: &build.previous_parameter_values,
        external_auth: &build.external_auth_providers,
    };
    let request = PlanRequest {
        stage: PLAN_STAGE,
        input,
        variables: &build.variable_values,
        state: &build.state,
        wants_plan: false,
    };
    let planned = match phase.steps.plan(request).await {
        Ok(planned) => planned,
        Err(error) => return Err(failure(error, timings)),
    };
    timings.extend(planned.timings);
    phase.reporter.flush().await;
    let summary = planned.summary;
    if summary.ai_task_count > 1 {
        let message = format!(
            "only one coder_ai_task resource can be provisioned per workspace, found {}",
            summary.ai_task_count
        );
        return Err(JobFailure::of_build(message, pb::failed_job::WorkspaceBuild::default()));
    }
    if summary.daily_cost != 0 && transition != WorkspaceTransition::Destroy {
        commit_quota(&phase, summary.daily_cost).await?;
    }

    let stage = match transition {
        WorkspaceTransition::Start => "Starting workspace",
        WorkspaceTransition::Stop => "Stopping workspace",
        WorkspaceTransition::Destroy => "Destroying workspace",
    };
    phase.reporter.stage(stage).await;
    let applied = match phase.steps.apply(stage, metadata).await {
        Ok(applied) => applied,
        Err(error) => return Err(failure(error, timings)),
    };
    timings.extend(applied.timings);
    phase.reporter.flush().await;

    let graphed = match phase.steps.graph_of_state(&applied.state).await {
        Ok(graphed) => graphed,
        Err(error) => return Err(failure(StepError { state: applied.state, ..error }, timings)),
    };
    timings.extend(graphed.timings);
    Ok(JobResult::WorkspaceBuild(pb::completed_job::WorkspaceBuild {
        state: applied.state,
        resources: graphed.converted.resources,
        timings,
        modules: initialized.modules.list,
        resource_replacements: summary.replacements,
        ai_tasks: graphed.converted.ai_tasks,
    }))
}

/// A failed step, with the timings of all steps before it.
fn failure(error: StepError, mut timings: Vec<sdk::Timing>) -> JobFailure {
    timings.extend(error.timings);
    JobFailure::of_build(error.message, pb::failed_job::WorkspaceBuild { state: error.state, timings })
}

async fn commit_quota(phase: &PhaseContext<'_>, daily_cost: i32) -> Result<(), JobFailure> {
    let log = phase.reporter.stage_log(QUOTA_STAGE, LogLevel::Trace);
    let request = pb::CommitQuotaRequest { job_id: phase.job_id.to_owned(), daily_cost };
    let empty_arm =
        |message: String| JobFailure::of_build(message, pb::failed_job::WorkspaceBuild::default());
    let answer = match phase.unless_canceled(phase.client.commit_quota(&request)).await {
        Ok(answer) => answer,
        Err(error) => {
            log.line(LogLevel::Error, &format!("Quota could not be committed: {error}")).await;
            return Err(empty_arm(format!("commit quota: {error}")));
        }
    };
    log.line(LogLevel::Info, &format!("Build cost       —   {daily_cost}")).await;
    let budget = if answer.budget < 0 { "unlimited".to_owned() } else { answer.budget.to_string() };
    log.line(LogLevel::Info, &format!("Budget           —   {budget}")).await;
    log.line(LogLevel::Info, &format!("Credits consumed —   {}", answer.credits_consumed)).await;
    if !answer.ok {
        log.line(LogLevel::Warn, "This build would exceed your quota; stop or delete other workspaces first")
            .await;
        return Err(empty_arm("insufficient quota".to_owned()));
    }
    phase.reporter.flush().await;
    Ok(())
}
