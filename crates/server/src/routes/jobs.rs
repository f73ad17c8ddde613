//! Provisioner jobs inside versions, dry runs and builds. The list of jobs is in `provisioner_jobs`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use coder_api::jobs::{Program, ProvisionerJob, ProvisionerJobInput, ProvisionerJobMetadata};
use coder_domain::ids::JobId;
use coder_domain::job::Status;
use coder_store::jobs::queue::{self, QueuePosition, WaitingDaemon};
use coder_store::jobs::{self, Job};
use coder_store::{Tx, transaction};

use super::matching_daemons;
use crate::audit::Event;
use crate::context::App;
use crate::http::{Caller, Error, Result};
use crate::provisioning::rescue::cancel;

/// The API type of a job, without the fields that only the jobs endpoints fill (http-api 11).
pub fn view(job: &Job, place: QueuePosition) -> ProvisionerJob {
    ProvisionerJob {
        id: job.id,
        created_at: job.created_at,
        started_at: job.started_at,
        completed_at: job.completed_at,
        canceled_at: job.canceled_at,
        error: job.error.clone(),
        error_code: job.error_code.clone(),
        status: job.status(),
        worker_id: job.worker_id,
        worker_name: String::new(),
        file_id: job.file_id,
        tags: job.tags.clone(),
        queue_position: place.position,
        queue_size: place.size,
        organization_id: job.organization_id,
        initiator_id: job.initiator_id,
        input: ProvisionerJobInput {
            template_version_id: job.template_version_id.filter(|_| job.workspace_build_id.is_none()),
            workspace_build_id: job.workspace_build_id,
            error: String::new(),
        },
        kind: job.kind,
        available_workers: Vec::new(),
        metadata: ProvisionerJobMetadata::default(),
        logs_overflowed: job.logs_overflowed,
        program: (!job.program_version.is_empty())
            .then(|| Program { product: job.program_product.clone(), version: job.program_version.clone() }),
    }
}

/// The queue positions of waiting jobs among the jobs that the connected daemons could run. Other jobs are missing.
pub async fn places(app: &App, tx: &mut Tx, jobs: &[&Job]) -> Result<HashMap<JobId, QueuePosition>> {
    let waiting: Vec<_> = jobs.iter().filter(|job| job.status() == Status::Pending).collect();
    if waiting.is_empty() {
        return Ok(HashMap::new());
    }
    let (mut takers, mut places) = (HashMap::new(), HashMap::new());
    for job in waiting {
        let kind = (job.organization_id, &job.provisioner, job.tag_set_id);
        if let Entry::Vacant(unknown) = takers.entry(kind) {
            unknown.insert(able(app, tx, job).await?);
        }
        places.insert(job.id, queue::position(tx, job, &takers[&kind]).await?);
    }
    Ok(places)
}

/// The online daemons that could run a job, one for each group of equal daemons.
async fn able(app: &App, tx: &mut Tx, job: &Job) -> Result<Vec<WaitingDaemon>> {
    let mut takers = Vec::new();
    for alike in matching_daemons::able(app, tx, &matching_daemons::demand(job), app.now()).await? {
        if alike.online > 0 {
            let tag_sets = app.scheduler.tag_sets().satisfied_by(tx, &alike.tags).await?;
            takers.push(WaitingDaemon {
                organization_id: job.organization_id,
                provisioners: alike.provisioners,
                tag_sets: tag_sets.into_iter().collect(),
            });
        }
    }
    Ok(takers)
}

/// One job with its queue position.
pub async fn view_with_place(app: &App, tx: &mut Tx, job: &Job) -> Result<ProvisionerJob> {
    let place = places(app, tx, &[job]).await?.remove(&job.id).unwrap_or_default();
    Ok(view(job, place))
}

/// The state that a job must have to be canceled.
pub use coder_store::jobs::ExpectedStatus;

/// Cancels a job, or returns why not (scheduling-and-auth 3.5). One statement decides when a daemon claims the job at the same
/// time. The audit entry is written in its transaction.
pub async fn cancel(
    app: &App,
    caller: &Caller,
    id: JobId,
    expected: Option<ExpectedStatus>,
    event: Event,
) -> Result<()> {
    let now = app.now();
    let outcome = transaction!(app.store, coder_store::Error, |tx| {
        let ended = jobs::cancel(tx, id, expected, now).await?;
        event.clone().by(tx, caller, now).await?;
        Ok(ended)
    });
    match outcome {
        Ok(ended) => {
            super::announce::job_changed(app, id);
            if !ended {
                cancel::requested(app, id);
            }
            Ok(())
        }
        Err(coder_store::Error::Stale { .. }) => {
            let job = jobs::get(&mut app.store.reader().await?, id).await?;
            if job.completed_at.is_some() {
                return Err(Error::bad_request("Job has already completed!"));
            }
            if job.canceled_at.is_some() {
                return Err(Error::bad_request("Job has already been marked as canceled!"));
            }
            Err(Error::new(http::StatusCode::PRECONDITION_FAILED, "Job is not in the expected state."))
        }
        Err(error) => Err(error.into()),
    }
}
