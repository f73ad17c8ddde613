//! When a daemon that could run a waiting job was last seen, and why the job waits (scheduling-and-auth 3.6).

use coder_domain::Timestamp;
use coder_domain::explain::{self, QueueState};
use coder_domain::ids::OrganizationId;
use coder_store::jobs::Job;
use coder_store::{Error, Tx};

use crate::context::App;
use crate::provisioning::dispatch::daemon_facts::DaemonFacts;
use crate::provisioning::session::presence::STALE_AFTER;

/// The daemons of an organization, read once per pass.
pub(super) struct UnservedCheck {
    facts: DaemonFacts,
    watched_since: Timestamp,
}

impl UnservedCheck {
    pub(super) async fn load(app: &App, tx: &mut Tx, organization: OrganizationId) -> Result<Self, Error> {
        let facts = DaemonFacts::load_all(app, tx, organization).await?;
        Ok(Self { facts, watched_since: app.scheduler.watched_since() })
    }

    /// When a daemon that could run the job was last seen, and why the job waits.
    pub(super) fn of(&self, job: &Job, now: Timestamp) -> (Timestamp, String) {
        let daemons = self.facts.daemons();
        let about = explain::WaitingJob {
            organization: job.organization_id,
            provisioner: &job.provisioner,
            tags: &job.tags,
            created_at: job.created_at,
            initiator: job.initiator_id,
        };
        let capable_daemon_seen_at =
            explain::capable_daemon_seen_at(&about, &daemons, self.watched_since, now);
        let reasons = explain::explain(&about, &daemons, QueueState::default(), now, STALE_AFTER);
        (capable_daemon_seen_at, reasons.first().map(explain::Reason::message).unwrap_or_default())
    }
}
