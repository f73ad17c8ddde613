//! The import of a template version: which parameters it declares, and which resources it would create
//! (wire-protocol 7.2).

use bytes::Bytes;
use coder_wire::messages::provisioner as sdk;
use coder_wire::messages::provisionerd as pb;
use sdk::WorkspaceTransition;

use super::{JobFailure, JobResult, PhaseContext, metadata_of, secrets};
use crate::connection::CallError;
use crate::terraform::command::environment::StepInput;
use crate::terraform::steps::{GraphOutput, PlanRequest, StepError};

pub(super) async fn run(
    mut phase: PhaseContext<'_>,
    import: &pb::acquired_job::TemplateImport,
    archive: Bytes,
) -> Result<JobResult, JobFailure> {
    let metadata = metadata_of(import.metadata.as_ref())?;
    let modules = phase.module_files(metadata).await.map_err(JobFailure::from_message)?;
    let initialized = phase
        .steps
        .init(archive, modules, true)
        .await
        .map_err(|error| JobFailure::from_step("template import init error: ", error))?;

    phase.reporter.stage("Parsing template parameters").await;
    let root = phase
        .steps
        .parse()
        .await
        .map_err(|error| JobFailure::from_step("run parse: parse error: ", error))?;
    phase.reporter.secrets().add(secrets::of_declared(&root.variables, &import.user_variable_values));
    let declared = root.variables.clone();
    let request = pb::UpdateJobRequest {
        template_variables: declared.clone(),
        workspace_tags: root.workspace_tags.clone(),
        user_variable_values: import.user_variable_values.clone(),
        readme: phase.steps.readme().await,
        ..pb::UpdateJobRequest::default()
    };
    let answer = phase.reporter.update(request).await.map_err(|error| match error {
        CallError::Refused(text) => JobFailure::from_message(format!("update job: {text}")),
        other => JobFailure::from_message(format!("update job: {other}")),
    })?;

    // Values that the server kept from earlier versions.
    phase.reporter.secrets().add(secrets::of_declared(&declared, &answer.variable_values));
    let start = plan(&mut phase, metadata, WorkspaceTransition::Start, &answer.variable_values)
        .await
        .map_err(|error| JobFailure::from_step("template import provision for start: ", error))?;
    let stop = plan(&mut phase, metadata, WorkspaceTransition::Stop, &answer.variable_values)
        .await
        .map_err(|error| JobFailure::from_step("template import provision for stop: ", error))?;

    let (start, plan) = start;
    Ok(JobResult::TemplateImport(pb::completed_job::TemplateImport {
        start_resources: start.converted.resources,
        stop_resources: stop.0.converted.resources,
        rich_parameters: start.converted.parameters,
        external_auth_providers_names: start
            .converted
            .external_auth_providers
            .iter()
            .map(|provider| provider.id.clone())
            .collect(),
        external_auth_providers: start.converted.external_auth_providers,
        start_modules: initialized.modules.list.clone(),
        stop_modules: initialized.modules.list,
        presets: start.converted.presets,
        plan,
        module_files: Bytes::from(initialized.modules.archive),
        module_files_hash: Vec::new(),
        has_ai_tasks: start.converted.has_ai_tasks,
        has_external_agents: start.converted.has_external_agents,
    }))
}

/// One of the two plans, with the metadata of an import.
async fn plan(
    phase: &mut PhaseContext<'_>,
    job: &sdk::Metadata,
    transition: WorkspaceTransition,
    variables: &[sdk::VariableValue],
) -> Result<(GraphOutput, Bytes), StepError> {
    let stage = match transition {
        WorkspaceTransition::Start => "Detecting persistent resources",
        _ => "Detecting ephemeral resources",
    };
    phase.reporter.stage(stage).await;
    let metadata = sdk::Metadata {
        coder_url: job.coder_url.clone(),
        workspace_owner_groups: job.workspace_owner_groups.clone(),
        workspace_transition: transition.into(),
        ..sdk::Metadata::default()
    };
    let input =
        StepInput { metadata: &metadata, parameters: &[], previous_parameters: &[], external_auth: &[] };
    let request = PlanRequest { stage, input, variables, state: &[], wants_plan: true };
    let planned = phase
        .steps
        .plan(request)
        .await
        .map_err(|error| prefixed("plan during template import provision error: ", error))?;
    phase.reporter.flush().await;
    let json = match phase.reporter.secrets().masker().json(&planned.json) {
        Some(masked) => Bytes::from(masked),
        None => planned.json.clone(),
    };
    let graphed = phase
        .steps
        .graph_of_plan(planned)
        .map_err(|error| prefixed("graph during template import provision error: ", error))?;
    Ok((graphed, json))
}

fn prefixed(prefix: &str, error: StepError) -> StepError {
    StepError { message: format!("{prefix}{}", error.message), ..error }
}
