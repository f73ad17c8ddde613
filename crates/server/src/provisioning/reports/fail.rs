//! FailJob: a job fails, with the state that the daemon could save.

use coder_domain::ids::WorkspaceId;
use coder_domain::job::{TransitionError, Type};
use coder_store::jobs::{self, journals};
use coder_store::transaction;
use coder_store::workspaces::builds;
use coder_wire::messages::provisionerd::{FailedJob, failed_job};

use super::complete::{digest, is_repeat, with_digest};
use super::refusal::{self, Refusal};
use super::results::Results;
use crate::audit;
use crate::provisioning::rescue::end_job::keep_state;
use crate::provisioning::session::Session;

/// Longest error text kept, in bytes.
const ERROR_BYTES: usize = 64 << 10;
/// Longest error code kept, in bytes.
const CODE_BYTES: usize = 64;

/// Answers one call (wire-protocol 5.6). Reports about ended jobs are refused. An empty error text counts as success.
pub async fn fail(session: &Session, request: &FailedJob) -> Result<(), Refusal> {
    let (app, daemon) = (&session.app, session.daemon);
    let job = refusal::job_id(&request.job_id)?;
    let holder = session.holder(job);
    let digest = digest(request);
    let (mut error, mut code) = (request.error.clone(), request.error_code.clone());
    error.truncate(error.floor_char_boundary(ERROR_BYTES));
    code.truncate(code.floor_char_boundary(CODE_BYTES));
    let saved = match &request.r#type {
        Some(failed_job::Type::WorkspaceBuild(build)) => build.clone(),
        _ => failed_job::WorkspaceBuild::default(),
    };
    let mut results = Results::default();
    results.add_timings(saved.timings);
    let now = app.now();
    let failed = transaction!(app.store, Refusal, |tx| {
        let found = refusal::known(session, jobs::find(tx, job).await?)?;
        match refusal::require(&found, holder) {
            Ok(()) => {}
            // A repeat, because the first answer was lost.
            Err(TransitionError::AlreadyCompleted) if is_repeat(&found, &digest) => return Ok(None),
            Err(reason) => return Err(reason.into()),
        }
        let mut workspace: Option<WorkspaceId> = None;
        if let (Type::WorkspaceBuild, Some(id)) = (found.kind, found.workspace_build_id) {
            let build = builds::get(tx, id).await?;
            if saved.state.is_empty() {
                keep_state(tx, job, id).await?;
            } else {
                builds::update_state(tx, id, saved.state.to_vec()).await?;
                journals::delete(tx, job).await?;
            }
            results.store(tx, job).await?;
            workspace = Some(build.workspace_id);
        }
        if let Err(error) = jobs::fail(tx, job, holder, &error, &code, now).await {
            return Err(refusal::explain(tx, session, job, holder, error).await);
        }
        audit::job_end::job(tx, &found, &error, now).await?;
        if found.session_hash.is_some() {
            // Attach tells a session that reconnects that this report arrived.
            jobs::update_input(tx, job, &with_digest(&found.input, &digest)).await?;
        }
        Ok(Some(workspace))
    })?;
    let Some(workspace) = failed else { return Ok(()) };
    session.job_ended(job);
    app.events.job_ended(job);
    if let Some(workspace) = workspace {
        app.events.workspace_changed(workspace);
    }
    tracing::info!(job_id = %job, daemon_id = %daemon, code, "job failed");
    Ok(())
}
