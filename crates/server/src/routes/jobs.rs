//! How a provisioner job looks inside versions, dry runs and builds. The jobs list is in `provisioner_jobs`.

use std::collections::{HashMap, HashSet};

use coder_api::jobs::{ProvisionerJob, ProvisionerJobInput, ProvisionerJobMetadata};
use coder_domain::ids::JobId;
use coder_domain::job::Status;
use coder_store::jobs::queue::{self, Place, Taker};
use coder_store::jobs::{self, Job};
use coder_store::{Tx, daemons, tag_sets};

use super::matched::STALE_AFTER;
use crate::context::App;
use crate::http::{Error, Result};
use crate::provisioning::cancel;

/// A job on the wire, without the fields that only the jobs endpoints fill (http-api 11).
pub fn view(job: &Job, place: Place) -> ProvisionerJob {
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
    }
}

/// Where waiting jobs stand among what the connected daemons could take; jobs that do not wait are missing.
pub async fn places(app: &App, tx: &mut Tx, jobs: &[&Job]) -> Result<HashMap<JobId, Place>> {
    let waiting: Vec<_> = jobs.iter().filter(|job| job.status() == Status::Pending).collect();
    if waiting.is_empty() {
        return Ok(HashMap::new());
    }
    let seen_since = app.now().checked_sub(STALE_AFTER).ok();
    let online = daemons::list(tx, &daemons::Filter { seen_since, ..daemons::Filter::default() }).await?;
    let sets = tag_sets::since(tx, 0).await?;
    let taker = |daemon: daemons::Daemon| {
        let satisfied = |set: &&tag_sets::Interned| daemon.tags.satisfies(&set.tags);
        let tag_sets: HashSet<_> = sets.iter().filter(satisfied).map(|set| set.id).collect();
        Taker { organization_id: daemon.organization_id, provisioners: daemon.provisioners, tag_sets }
    };
    let takers: Vec<_> = online.into_iter().map(taker).collect();
    let mut places = HashMap::new();
    for job in waiting {
        places.insert(job.id, queue::place(tx, job, &takers).await?);
    }
    Ok(places)
}

/// One job with its place.
pub async fn view_with_place(app: &App, tx: &mut Tx, job: &Job) -> Result<ProvisionerJob> {
    let place = places(app, tx, &[job]).await?.remove(&job.id).unwrap_or_default();
    Ok(view(job, place))
}

/// In which state a job must be for a cancel to be right.
pub use coder_store::jobs::Expected;

/// Cancels a job, and says why not otherwise (scheduling-and-auth 3.5). One statement decides against a daemon that
/// takes the job at the same moment.
pub async fn cancel(app: &App, id: JobId, expected: Option<Expected>) -> Result<()> {
    let outcome = jobs::cancel(&mut app.store.single().await?, id, expected, app.now()).await;
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
