//! What every handler and task can reach: settings, store, clock, wake-ups and the few process-wide caches.

use std::sync::Arc;

use coder_domain::Timestamp;
use coder_domain::clock::Clock;
use coder_domain::ids::OrganizationId;
use coder_store::Store;

use crate::authn::password::Hasher;
use crate::config::Config;
use crate::events::Events;
use crate::external_auth::providers::Accounts;
use crate::http::limits::RateLimits;
use crate::lifecycle::Lifecycle;
use crate::memory::Memory;
use crate::metrics::counters::Metrics;
use crate::provisioning::dispatch::scheduler::Scheduler;

/// The shared context as axum state.
pub type App = Arc<Ctx>;

/// The shared context.
pub struct Ctx {
    /// Settings.
    pub config: Config,
    /// The database.
    pub store: Store,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Wake-ups between tasks.
    pub events: Events,
    /// Who gets the next job.
    pub scheduler: Scheduler,
    /// What we say about ourselves.
    pub build: Build,
    /// Identity of this deployment, the same on all replicas.
    pub deployment_id: String,
    /// The organization called `default`.
    pub default_organization: OrganizationId,
    /// Stop signals and running tasks.
    pub lifecycle: Lifecycle,
    /// Password hashing with bounded concurrency.
    pub passwords: Hasher,
    /// What peers can make us hold.
    pub memory: Memory,
    /// Requests per minute.
    pub rates: RateLimits,
    /// Accounts elsewhere.
    pub accounts: Accounts,
    /// What is counted for Prometheus.
    pub metrics: Metrics,
}

/// Versions.
#[derive(Clone, Debug)]
pub struct Build {
    /// What peers are told: the version we are compatible with, `v2.30.0+0123abc` (http-api 1.8).
    pub compatible: String,
    /// Our own version.
    pub product: String,
}

impl Ctx {
    /// The current instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}
