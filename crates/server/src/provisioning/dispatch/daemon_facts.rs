//! The state of an organization's daemons, for explaining why a job waits and for ending jobs that no daemon can run.

use std::collections::HashSet;

use coder_domain::Timestamp;
use coder_domain::explain::{Daemon, Presence, WaitingJob};
use coder_domain::ids::{DaemonId, OrganizationId};
use coder_domain::tags::{DaemonCapabilities, JobRequirements, matches};
use coder_store::daemons::ConnectedDaemons;
use coder_store::{Error, Tx, daemons};

use crate::context::App;
use crate::provisioning::session::presence;

/// Most daemons of an organization that an explanation considers, by last-seen time.
const MAX_DAEMONS: i64 = 20_000;

/// The daemons of an organization at one moment.
pub struct DaemonFacts {
    daemons: Vec<daemons::facts::DaemonFacts>,
    connected: HashSet<DaemonId>,
    known: ConnectedDaemons,
    /// Whether daemons may be connected to other servers.
    is_shared: bool,
    at: Timestamp,
}

impl DaemonFacts {
    /// Reads them in one statement.
    pub async fn load(app: &App, tx: &mut Tx, organization: OrganizationId) -> Result<Self, Error> {
        Self::read(app, tx, organization, MAX_DAEMONS).await
    }

    /// As [`Self::load`], without a limit, for the reaper.
    pub async fn load_all(app: &App, tx: &mut Tx, organization: OrganizationId) -> Result<Self, Error> {
        Self::read(app, tx, organization, i64::MAX).await
    }

    async fn read(app: &App, tx: &mut Tx, organization: OrganizationId, most: i64) -> Result<Self, Error> {
        Ok(Self {
            daemons: daemons::facts::list(tx, organization, most).await?,
            connected: app.scheduler.connected().daemons().into_iter().collect(),
            known: presence::connected(app),
            is_shared: app.store.is_postgres(),
            at: app.now(),
        })
    }

    /// The daemons, for `domain::explain`.
    #[must_use]
    pub fn daemons(&self) -> Vec<Daemon<'_>> {
        self.daemons.iter().map(|facts| facts.daemon(self.session(facts), self.at)).collect()
    }

    /// The daemons that could run a job, by type and tags.
    pub fn able<'a>(
        &'a self,
        job: &'a WaitingJob<'_>,
    ) -> impl Iterator<Item = &'a daemons::facts::DaemonFacts> {
        let demand =
            JobRequirements { organization: job.organization, provisioner: job.provisioner, tags: job.tags };
        self.daemons.iter().filter(move |daemon| {
            let organization = daemon.organization_id;
            matches(
                &DaemonCapabilities { organization, provisioners: &daemon.provisioners, tags: &daemon.tags },
                &demand,
            )
        })
    }

    fn session(&self, daemon: &daemons::facts::DaemonFacts) -> Presence {
        match (self.connected.contains(&daemon.id), self.is_shared) {
            (true, _) => Presence::Connected,
            _ if self.known.has(daemon.id, daemon.left_at, &daemon.server) => Presence::Connected,
            (false, true) if daemon.left_at.is_some() => Presence::Disconnected,
            (false, false) => Presence::Disconnected,
            (false, true) => Presence::Unknown,
        }
    }
}
