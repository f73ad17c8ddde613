//! How many daemons could take a job (scheduling-and-auth 1.7).

use coder_api::daemons::MatchedProvisioners;
use coder_domain::Timestamp;
use coder_domain::tags::{Demand, Offer, matches};
use coder_store::jobs::Job;
use coder_store::{Tx, daemons};
use jiff::SignedDuration;

use crate::http::Result;

/// A daemon that was not seen for so long is offline.
pub const STALE_AFTER: SignedDuration = SignedDuration::from_secs(90);

/// Counts the daemons that match `demand`; `at` is the moment for which "online" is asked.
pub async fn count(tx: &mut Tx, demand: &Demand<'_>, at: Timestamp) -> Result<MatchedProvisioners> {
    let filter = daemons::Filter { organization_id: Some(demand.organization), ..daemons::Filter::default() };
    let mut counted = MatchedProvisioners::default();
    for daemon in daemons::list(tx, &filter).await? {
        let offer = Offer {
            organization: daemon.organization_id,
            provisioners: &daemon.provisioners,
            tags: &daemon.tags,
        };
        let Some(seen) = daemon.last_seen_at.filter(|_| matches(&offer, demand)) else { continue };
        counted.count += 1;
        if at.duration_since(seen) <= STALE_AFTER {
            counted.available += 1;
        }
        counted.most_recently_seen = counted.most_recently_seen.max(Some(seen));
    }
    Ok(counted)
}

/// Counts the daemons that could take `job`.
pub async fn for_job(tx: &mut Tx, job: &Job, at: Timestamp) -> Result<MatchedProvisioners> {
    let demand = Demand { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags };
    count(tx, &demand, at).await
}
