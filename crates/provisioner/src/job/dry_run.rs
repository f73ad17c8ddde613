//! A dry run: which resources a build with these values would have (wire-protocol 7.2).

use bytes::Bytes;
use coder_wire::messages::provisioner as sdk;
use coder_wire::messages::provisionerd as pb;
use uuid::Uuid;

use super::{JobFailure, JobResult, PhaseContext, metadata_of};
use crate::terraform::command::environment::StepInput;
use crate::terraform::steps::PlanRequest;

const STAGE: &str = "Detecting persistent resources";

pub(super) async fn run(
    mut phase: PhaseContext<'_>,
    dry_run: &pb::acquired_job::TemplateDryRun,
    user_name: &str,
    archive: Bytes,
) -> Result<JobResult, JobFailure> {
    let metadata = filled_in(metadata_of(dry_run.metadata.as_ref())?, user_name);
    let modules = phase.module_files(&metadata).await.map_err(JobFailure::from_message)?;
    let initialized = phase
        .steps
        .init(archive, modules, false)
        .await
        .map_err(|error| JobFailure::from_step("template dry-run init error: ", error))?;
    let input = StepInput {
        metadata: &metadata,
        parameters: &dry_run.rich_parameter_values,
        previous_parameters: &[],
        external_auth: &[],
    };
    let request = PlanRequest {
        stage: STAGE,
        input,
        variables: &dry_run.variable_values,
        state: &[],
        wants_plan: true,
    };
    let failed = |error| JobFailure::from_step("run dry-run provision job: ", error);
    let planned = phase.steps.plan(request).await.map_err(failed)?;
    phase.reporter.flush().await;
    let graphed = phase.steps.graph_of_plan(planned).map_err(failed)?;
    Ok(JobResult::TemplateDryRun(pb::completed_job::TemplateDryRun {
        resources: graphed.converted.resources,
        modules: initialized.modules.list,
    }))
}

/// Fills in what a workspace has and a dry run lacks.
fn filled_in(job: &sdk::Metadata, user_name: &str) -> sdk::Metadata {
    let mut metadata = job.clone();
    let or = |text: &mut String, value: &str| {
        if text.is_empty() {
            value.clone_into(text);
        }
    };
    metadata.set_workspace_transition(sdk::WorkspaceTransition::Start);
    or(&mut metadata.coder_url, "http://localhost:3000");
    or(&mut metadata.workspace_name, "dryrun");
    or(&mut metadata.workspace_owner, user_name);
    or(&mut metadata.workspace_owner, "dryrunner");
    or(&mut metadata.workspace_id, &Uuid::new_v4().to_string());
    or(&mut metadata.workspace_owner_id, &Uuid::new_v4().to_string());
    metadata
}
