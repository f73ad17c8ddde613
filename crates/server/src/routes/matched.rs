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
    let since = at.checked_sub(STALE_AFTER).unwrap_or(Timestamp::MIN);
    let mut counted = MatchedProvisioners::default();
    for alike in daemons::summary(tx, demand.organization, since).await? {
        let offer =
            Offer { organization: demand.organization, provisioners: &alike.provisioners, tags: &alike.tags };
        if matches(&offer, demand) {
            counted.count += alike.daemons;
            counted.available += alike.online;
            counted.most_recently_seen = counted.most_recently_seen.max(Some(alike.last_seen_at));
        }
    }
    Ok(counted)
}

/// Counts the daemons that could take `job`.
pub async fn for_job(tx: &mut Tx, job: &Job, at: Timestamp) -> Result<MatchedProvisioners> {
    let demand = Demand { organization: job.organization_id, provisioner: &job.provisioner, tags: &job.tags };
    count(tx, &demand, at).await
}
