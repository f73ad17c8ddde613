//! Reads the queue of one organization for all its pools.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use coder_api::client::{Client as Coder, DaemonFilter, Error, JobFilter};
use coder_api::daemons::ProvisionerDaemon;
use coder_api::jobs::{ProvisionerJob, Status};
use coder_domain::backoff::Backoff;
use coder_domain::clock::Clock;
use coder_domain::ids::{DaemonId, OrganizationId};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::{Demand, Interest, PoolId, demands};

/// Lists without a limit have 50 rows.
const MAX_ROWS: u32 = 100_000;
/// How old the list of daemons may become while the jobs do not change.
const DAEMONS_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Least time between two reads, however many pools ask for one.
const LEAST_PAUSE: Duration = Duration::from_millis(500);

/// The reader of one organization's queue.
pub(super) struct Reader {
    client: Coder,
    organization: OrganizationId,
    state: Mutex<State>,
    /// Wakes the loop when a pool was registered or wants to know more, or when the last one left.
    woken: Notify,
}

#[derive(Default)]
struct State {
    pools: BTreeMap<PoolId, Interest>,
    demands: BTreeMap<PoolId, Arc<Demand>>,
    has_ended: bool,
    /// A pool has seen that the known daemons are out of date.
    is_outdated: bool,
}

/// What was read last.
#[derive(Default)]
struct Known {
    daemons: Vec<ProvisionerDaemon>,
    /// The daemons that had a job then.
    workers: BTreeSet<DaemonId>,
    read_at: Option<Timestamp>,
}

impl Reader {
    pub(super) fn new(client: Coder, organization: OrganizationId) -> Self {
        Self { client, organization, state: Mutex::default(), woken: Notify::new() }
    }

    pub(super) fn register(&self, pool: &PoolId, interest: Interest) -> Option<Arc<Demand>> {
        let mut state = self.state.lock();
        if state.pools.get(pool) != Some(&interest) {
            state.pools.insert(pool.clone(), interest);
            self.woken.notify_one();
        }
        state.demands.get(pool).cloned()
    }

    /// Reads early if the pool is one of this reader.
    pub(super) fn look(&self, pool: &PoolId) {
        let mut state = self.state.lock();
        if state.pools.contains_key(pool) {
            state.is_outdated = true;
            self.woken.notify_one();
        }
    }

    /// Returns whether other pools are left.
    pub(super) fn forget(&self, pool: &PoolId) -> bool {
        let mut state = self.state.lock();
        state.pools.remove(pool);
        state.demands.remove(pool);
        state.has_ended = state.pools.is_empty();
        if state.has_ended {
            self.woken.notify_one();
        }
        !state.has_ended
    }

    pub(super) fn demands(&self) -> Vec<(PoolId, Arc<Demand>)> {
        self.state.lock().demands.iter().map(|(pool, demand)| (pool.clone(), Arc::clone(demand))).collect()
    }

    /// Reads until no pool is left, or nobody listens any more.
    pub(super) async fn run(self: Arc<Self>, changes: mpsc::Sender<PoolId>, clock: Arc<dyn Clock>) {
        let mut known = Known::default();
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30)).with_jitter();
        loop {
            let every = {
                let state = self.state.lock();
                if state.has_ended || changes.is_closed() {
                    return;
                }
                state.pools.values().map(|pool| pool.every).min().unwrap_or(Duration::from_secs(10))
            };
            let (least, pause) = match self.read(&mut known, clock.now()).await {
                Ok(jobs) => {
                    backoff.reset();
                    self.publish(Ok((&jobs, &known.daemons)), &changes).await;
                    (LEAST_PAUSE, every)
                }
                Err(error) => {
                    tracing::warn!(%error, organization_id = %self.organization, "cannot read the queue");
                    self.publish(Err(&error), &changes).await;
                    // A server in trouble is not asked more often because pools want to know more.
                    let delay = backoff.next_delay();
                    (delay, every.max(delay))
                }
            };
            tokio::time::sleep(least).await;
            tokio::select! {
                () = tokio::time::sleep(pause.saturating_sub(least)) => {}
                () = self.woken.notified() => {}
            }
        }
    }

    /// The jobs; the daemons are read again only when the jobs show that they changed, when a pool asked, or after a while.
    async fn read(&self, known: &mut Known, now: Timestamp) -> Result<Vec<ProvisionerJob>, Error> {
        let status = ["pending", "running", "canceling"].map(str::to_owned).to_vec();
        let filter = JobFilter { limit: Some(MAX_ROWS), status, ..JobFilter::default() };
        let jobs = self.client.jobs(self.organization, &filter).await?;
        let workers: BTreeSet<DaemonId> = jobs.iter().filter_map(|job| job.worker_id).collect();
        let has_waiting = jobs.iter().any(|job| job.status == Status::Pending);
        let is_outdated = std::mem::take(&mut self.state.lock().is_outdated);
        let is_old = known.read_at.is_none_or(|at| now.duration_since(at) >= DAEMONS_AFTER);
        if is_outdated || is_old || has_waiting || workers != known.workers {
            let filter = DaemonFilter { limit: Some(MAX_ROWS), ..DaemonFilter::default() };
            known.daemons = self.client.daemons(self.organization, &filter).await?;
            known.workers = workers;
            known.read_at = Some(now);
        }
        Ok(jobs)
    }

    async fn publish(
        &self,
        read: Result<(&Vec<ProvisionerJob>, &Vec<ProvisionerDaemon>), &Error>,
        changes: &mpsc::Sender<PoolId>,
    ) {
        let changed: Vec<PoolId> = {
            let mut state = self.state.lock();
            let new = match read {
                Ok((jobs, daemons)) => demands(&state.pools, jobs, daemons),
                Err(error) => {
                    let last = |pool: &PoolId| {
                        state.demands.get(pool).map(|known| (**known).clone()).unwrap_or_default()
                    };
                    let pools = state.pools.keys();
                    pools
                        .map(|pool| (pool.clone(), Demand { error: Some(error.to_string()), ..last(pool) }))
                        .collect()
                }
            };
            let mut changed = Vec::new();
            for (pool, demand) in new {
                if state.demands.get(&pool).is_none_or(|known| known.differs(&demand)) {
                    changed.push(pool.clone());
                }
                state.demands.insert(pool, Arc::new(demand));
            }
            changed
        };
        for pool in changed {
            // The receiver is gone when the operator stops.
            if changes.send(pool).await.is_err() {
                return;
            }
        }
    }
}
