//! Why a job waits.

use std::collections::{BTreeSet, HashSet};

use axum::extract::State;
use coder_api::explanations::{JobExplanation, WaitingReason};
use coder_domain::explain::{self, QueueState};
use coder_domain::ids::JobId;
use coder_domain::job::Status;
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::jobs::queue::fair_position;
use coder_store::jobs::{self, Job};

use super::view::object;
use crate::context::App;
use crate::http::params::{Names, id};
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::dispatch::daemon_facts::DaemonFacts;
use crate::provisioning::session::presence::STALE_AFTER;
use crate::routes::organizations;

/// `GET /organizations/{organization}/provisionerjobs/{job}/explain`: for those who may see the jobs list, and for
/// the initiator of the job.
pub async fn explain(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<JobExplanation>> {
    let [organization, job] = names.take()?;
    let job: JobId = id(&job)?;
    let mut tx = app.store.reader().await?;
    let organization = organizations::named(&app, &mut tx, &caller, &organization).await?;
    let may_see_all = caller.may(Action::Read, object(organization.id));
    let found = jobs::find(&mut tx, job).await?;
    let visible = |job: &Job| {
        job.organization_id == organization.id && (may_see_all || job.initiator_id == caller.user.id)
    };
    let job = found.filter(visible).ok_or_else(Error::not_found)?;
    Ok(Json(of(&app, &mut tx, &job).await?))
}

/// Explains a job. A job that does not wait has no reasons.
async fn of(app: &App, tx: &mut Tx, job: &Job) -> Result<JobExplanation> {
    let status = job.status();
    let mut explanation = JobExplanation { job_id: job.id, status, reasons: Vec::new() };
    if status != Status::Pending {
        return Ok(explanation);
    }
    let about = explain::WaitingJob {
        organization: job.organization_id,
        provisioner: &job.provisioner,
        tags: &job.tags,
        created_at: job.created_at,
        initiator: job.initiator_id,
    };
    let facts = DaemonFacts::load(app, tx, job.organization_id).await?;
    let queue = queue(app, tx, job, &about, &facts).await?;
    let reasons = explain::explain(&about, &facts.daemons(), queue, app.now(), STALE_AFTER);
    explanation.reasons = reasons
        .iter()
        .map(|reason| WaitingReason {
            code: reason.code().to_owned(),
            message: reason.message(),
            next_step: reason.next_step(&job.tags),
            passes_by_itself: reason.passes_by_itself(),
        })
        .collect();
    Ok(explanation)
}

/// The queue position among the jobs that its daemons could run, in the order in which they are handed out.
async fn queue(
    app: &App,
    tx: &mut Tx,
    job: &Job,
    about: &explain::WaitingJob<'_>,
    facts: &DaemonFacts,
) -> Result<QueueState> {
    let able: Vec<_> = facts.able(about).collect();
    if able.is_empty() {
        return Ok(QueueState::default());
    }
    let offers: HashSet<_> = able.iter().map(|daemon| &daemon.tags).collect();
    let mut sets = BTreeSet::new();
    for tags in offers {
        sets.extend(app.scheduler.tag_sets().satisfied_by(tx, tags).await?);
    }
    let sets: Vec<_> = sets.into_iter().collect();
    let kinds: BTreeSet<_> = able.iter().flat_map(|daemon| daemon.provisioners.iter().cloned()).collect();
    let kinds: Vec<_> = kinds.into_iter().collect();
    let place = fair_position(tx, job, &kinds, &sets).await?;
    let number = |count: i64| u64::try_from(count).unwrap_or_default();
    Ok(QueueState {
        position: number(place.position),
        size: number(place.size),
        oldest_running_since: able.iter().filter_map(|daemon| daemon.oldest_running_since).min(),
    })
}
