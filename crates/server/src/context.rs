//! The shared context of handlers and tasks: settings, store, clock, wake-ups and the process-wide caches.

use std::sync::Arc;

use coder_domain::Timestamp;
use coder_domain::clock::Clock;
use coder_domain::ids::{AgentId, OrganizationId};
use coder_store::Store;
use tokio::sync::Notify;

use crate::agents::connected_agents::ConnectedAgents;
use crate::agents::pending::PendingReports;
use crate::apps::state::AppsState;
use crate::authn::password::Hasher;
use crate::config::Config;
use crate::events::Events;
use crate::external_auth::providers::ExternalAuthProviders;
use crate::http::limits::RateLimits;
use crate::http::open_count::OpenCount;
use crate::http::websocket_limit::WebSocketLimit;
use crate::lifecycle::Lifecycle;
use crate::memory::Memory;
use crate::metrics::counters::Metrics;
use crate::network::Network;
use crate::provisioning::credentials::ended_tokens::EndedTokens;
use crate::provisioning::dispatch::scheduler::Scheduler;

/// The shared context as axum state.
pub type App = Arc<Ctx>;

/// The shared context.
pub struct Ctx {
    /// Settings.
    pub config: Config,
    /// The database.
    pub store: Store,
    /// The source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Wake-ups between tasks.
    pub events: Events,
    /// Hands jobs to daemons.
    pub scheduler: Scheduler,
    /// The versions of this server.
    pub build: Build,
    /// Identity of this deployment, the same on all replicas.
    pub deployment_id: String,
    /// The organization called `default`.
    pub default_organization: OrganizationId,
    /// Stop signals and running tasks.
    pub lifecycle: Lifecycle,
    /// Password hashing with bounded concurrency.
    pub passwords: Hasher,
    /// Memory that requests and daemons may take.
    pub memory: Memory,
    /// Requests per minute.
    pub rates: RateLimits,
    /// Open WebSockets per user.
    pub websockets: Arc<WebSocketLimit>,
    /// Streams of an agent that wait for the claim of its workspace.
    pub claim_streams: Arc<OpenCount<AgentId>>,
    /// Requests of an agent that wait until its owner has connected an account.
    pub account_waits: Arc<OpenCount<AgentId>>,
    pub external_auth: ExternalAuthProviders,
    /// Relay, coordinator, and the users connected to it.
    pub network: Network,
    /// Apps of workspaces in the browser.
    pub apps: AppsState,
    /// The agents that are connected to this process.
    pub agents: ConnectedAgents,
    /// Reports of agents that are written together.
    pub pending: PendingReports,
    /// Wakes the schedule task after a change.
    pub schedules_changed: Arc<Notify>,
    /// Users whose connections are checked, because a token of theirs ended.
    pub ended_tokens: Arc<EndedTokens>,
    /// Prometheus metrics.
    pub metrics: Metrics,
}

/// Versions.
#[derive(Clone, Debug)]
pub struct Build {
    /// The version that peers see, `v2.30.0+0123abc`: the one that this server is compatible with (http-api 1.8).
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
