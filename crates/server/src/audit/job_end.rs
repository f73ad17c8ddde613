//! Audit entries about builds and imports. They are written when the job ends, and name the user who requested it and the
//! origin of that request (scheduling-and-auth 5.4). The job's private input keeps both until then.

use std::net::IpAddr;

use coder_domain::Timestamp;
use coder_domain::build::Transition;
use coder_domain::job::Type;
use coder_store::jobs::Job;
use coder_store::workspaces::builds::{self, Build};
use coder_store::{Result, Tx};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Event, Kind, Verb};
use crate::http::origin::Origin;

/// The field of a job's input that holds the context.
const FIELD: &str = "audit";

/// What an entry about the end of a job needs beyond the rows of the job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditContext {
    /// Name of the workspace or of the template version.
    pub name: String,
    /// User name of the workspace's owner.
    pub owner: String,
    /// The client address of the request.
    ip: Option<IpAddr>,
    /// The `User-Agent` of the request.
    user_agent: String,
}

impl AuditContext {
    /// The context of a job that this request creates.
    #[must_use]
    pub fn new(name: &str, owner: &str, origin: &Origin) -> Self {
        Self {
            name: name.to_owned(),
            owner: owner.to_owned(),
            ip: origin.address,
            user_agent: origin.user_agent.clone(),
        }
    }

    /// Stores it in the input of a job.
    pub fn store_in(&self, input: &mut serde_json::Value) {
        if let (Some(fields), Ok(kept)) = (input.as_object_mut(), serde_json::to_value(self)) {
            fields.insert(FIELD.to_owned(), kept);
        }
    }

    /// Reads it from a job. Jobs of older servers have none.
    fn of(job: &Job) -> Self {
        let kept = job.input.0.get(FIELD).cloned().unwrap_or_default();
        serde_json::from_value(kept).unwrap_or_default()
    }
}

/// Writes that a build ended: with status 200, or 500 when there is an error. The id of the job is the request id.
pub async fn build(tx: &mut Tx, job: &Job, build: &Build, error: &str, now: Timestamp) -> Result<()> {
    let verb = match build.transition {
        Transition::Start => Verb::Start,
        Transition::Stop => Verb::Stop,
        Transition::Delete => Verb::Delete,
    };
    let context = AuditContext::of(job);
    let event = Event::new(verb, Kind::WorkspaceBuild, build.id.0, context.name.as_str())
        .in_organization(job.organization_id)
        .note("workspace_id", build.workspace_id.to_string())
        .note("workspace_name", context.name.as_str())
        .note("workspace_owner", context.owner.as_str())
        .note("build_number", build.build_number.to_string())
        .note("build_reason", build.reason.as_str());
    write(tx, event, job, context, error, now).await
}

/// Writes that a job ended. Dry runs have no entry: they change nothing.
pub async fn job(tx: &mut Tx, job: &Job, error: &str, now: Timestamp) -> Result<()> {
    match (job.kind, job.workspace_build_id) {
        (Type::WorkspaceBuild, Some(id)) => {
            let ended = builds::get(tx, id).await?;
            build(tx, job, &ended, error, now).await
        }
        (Type::TemplateVersionImport, _) => import(tx, job, error, now).await,
        _ => Ok(()),
    }
}

/// Writes that an import ended.
pub async fn import(tx: &mut Tx, job: &Job, error: &str, now: Timestamp) -> Result<()> {
    let Some(version) = job.template_version_id else { return Ok(()) };
    let context = AuditContext::of(job);
    let outcome = if error.is_empty() { "succeeded" } else { "failed" };
    let event = Event::new(Verb::Write, Kind::TemplateVersion, version.0, context.name.as_str())
        .in_organization(job.organization_id)
        .change("import", "running", outcome);
    write(tx, event, job, context, error, now).await
}

async fn write(
    tx: &mut Tx,
    event: Event,
    job: &Job,
    context: AuditContext,
    error: &str,
    now: Timestamp,
) -> Result<()> {
    let origin = Origin { request: job.id.0, address: context.ip, user_agent: context.user_agent };
    let status = if error.is_empty() { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    event.status(status).write(tx, job.initiator_id, &origin, now).await
}
