//! FailJob: a job ends with an error, together with what the daemon could save.

use coder_domain::ids::WorkspaceId;
use coder_domain::job::Type;
use coder_store::{builds, jobs, transaction};
use coder_wire::messages::provisionerd::{FailedJob, failed_job};

use super::refuse::{self, Refusal};
use super::results::Results;
use super::serve::Session;

/// Longest error text kept, in bytes.
const ERROR_BYTES: usize = 64 << 10;
/// Longest error code kept, in bytes.
const CODE_BYTES: usize = 64;

/// Answers one call (wire-protocol 5.6). A job that has ended refuses it; an empty error text counts as success there.
pub async fn fail(session: &Session, request: &FailedJob) -> Result<(), Refusal> {
    let (app, daemon) = (&session.app, session.daemon);
    let job = refuse::job_id(&request.job_id)?;
    let (mut error, mut code) = (request.error.clone(), request.error_code.clone());
    cut(&mut error, ERROR_BYTES);
    cut(&mut code, CODE_BYTES);
    let saved = match &request.r#type {
        Some(failed_job::Type::WorkspaceBuild(build)) => build.clone(),
        _ => failed_job::WorkspaceBuild::default(),
    };
    let mut results = Results::default();
    results.add_timings(saved.timings);
    let now = app.now();
    let workspace = transaction!(app.store, Refusal, |tx| {
        let found = refuse::owned(tx, job, daemon).await?;
        let mut workspace: Option<WorkspaceId> = None;
        if let (Type::WorkspaceBuild, Some(id)) = (found.kind, found.workspace_build_id) {
            let build = builds::get(tx, id).await?;
            if !saved.state.is_empty() {
                builds::update_state(tx, id, saved.state.to_vec()).await?;
            }
            results.store(tx, job).await?;
            workspace = Some(build.workspace_id);
        }
        match jobs::fail(tx, job, daemon, &error, &code, now).await {
            Ok(()) => Ok(workspace),
            Err(error) => Err(refuse::explain(tx, job, daemon, error).await),
        }
    })?;
    app.events.job_ended(job);
    if let Some(workspace) = workspace {
        app.events.workspace_changed(workspace);
    }
    tracing::info!(%job, %daemon, code, "job failed");
    Ok(())
}

/// Cuts a text without splitting a character.
fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}
