//! The daemons that could run a job (scheduling-and-auth 1.7).

use coder_api::daemons::MatchedProvisioners;
use coder_domain::Timestamp;
use coder_domain::tags::{DaemonCapabilities, JobRequirements, matches};
use coder_store::daemons::MatchedDaemons;
use coder_store::jobs::Job;
use coder_store::{Tx, daemons};

use crate::context::App;
use crate::http::Result;
use crate::provisioning::session::presence::{STALE_AFTER, seen_within_of};

/// Counts the daemons that match `demand`. Daemons that can take a job as of `at` are available: they are online, healthy and
/// not draining.
pub async fn count(
    app: &App,
    tx: &mut Tx,
    demand: &JobRequirements<'_>,
    at: Timestamp,
) -> Result<MatchedProvisioners> {
    let mut counted = MatchedProvisioners::default();
    for alike in able(app, tx, demand, at).await? {
        counted.count += alike.daemons;
        counted.available += alike.available;
        counted.most_recently_seen = counted.most_recently_seen.max(Some(alike.last_seen_at));
    }
    Ok(counted)
}

/// The daemons that match `demand`, grouped by the jobs that they can run.
pub async fn able(
    app: &App,
    tx: &mut Tx,
    demand: &JobRequirements<'_>,
    at: Timestamp,
) -> Result<Vec<MatchedDaemons>> {
    let seen = seen_within_of(app, at, STALE_AFTER);
    let (tag_sets, known) = app.scheduler.tag_sets().known_to_satisfy(demand.tags);
    let (mut alike, newest) = daemons::list_matched(tx, demand.organization, &tag_sets, &seen).await?;
    if newest > known {
        let tag_sets = app.scheduler.tag_sets().that_satisfy(tx, demand.tags).await?;
        (alike, _) = daemons::list_matched(tx, demand.organization, &tag_sets, &seen).await?;
    }
    alike.retain(|alike| {
        let organization = demand.organization;
        matches(
            &DaemonCapabilities { organization, provisioners: &alike.provisioners, tags: &alike.tags },
            demand,
        )
    });
    Ok(alike)
}

/// Counts the daemons that could take `job`.
pub async fn for_job(app: &App, tx: &mut Tx, job: &Job, at: Timestamp) -> Result<MatchedProvisioners> {
    count(app, tx, &demand(job), at).await
}

pub fn demand(job: &Job) -> JobRequirements<'_> {
    JobRequirements { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags }
}
