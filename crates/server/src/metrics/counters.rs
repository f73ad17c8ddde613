//! Counters that are updated as things happen.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coder_domain::ids::OrganizationId;
use coder_domain::tags::TagSet;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::sockets::{Durations, OpenSocket, Sockets};
use super::workspaces::WorkspaceCounts;

/// Most tag sets with labels of their own. All others share the labels of [`OTHER_TAG_SETS`].
pub const MAX_TAG_SETS: usize = 100;
/// The tag set of all others.
pub(super) const OTHER_TAG_SETS: &str = "(others)";

/// Seconds that a job may wait.
const WAIT_SECONDS_BUCKETS: [f64; 11] = [0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];
/// Seconds that a request may take (scheduling-and-auth 6.2).
const LATENCY_SECONDS_BUCKETS: [f64; 11] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RouteLabels {
    method: &'static str,
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    code: u16,
    method: &'static str,
    path: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct TagSetLabels {
    pub(super) organization_id: String,
    pub(super) tags: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkspaceCreationLabels {
    organization_name: String,
    template_name: String,
    preset_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// Metrics of another part of this process, in the text form of OpenMetrics.
pub(super) type ExtraMetrics = Box<dyn Fn() -> String + Send + Sync>;

pub(super) struct Inner {
    pub(super) registry: Registry,
    answers: Family<ResponseLabels, Counter>,
    latencies: Durations<RouteLabels>,
    concurrent: Family<RouteLabels, Gauge>,
    waits: Durations<TagSetLabels>,
    joins: Counter,
    reconnects: Counter,
    ended: Family<ReasonLabels, Counter>,
    creations: Family<WorkspaceCreationLabels, Counter>,
    sockets: Sockets,
    pub(super) workspace_counts: WorkspaceCounts,
    pub(super) sources: Mutex<Vec<ExtraMetrics>>,
    known: Mutex<HashSet<TagSetLabels>>,
}

/// The counts of a server; clones share them.
#[derive(Clone)]
pub struct Metrics(pub(super) Arc<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let sockets = Sockets::new(&mut registry);
        let mut inner = Inner {
            registry,
            answers: Family::default(),
            latencies: Durations::new_with_constructor(|| Histogram::new(LATENCY_SECONDS_BUCKETS)),
            concurrent: Family::default(),
            waits: Durations::new_with_constructor(|| Histogram::new(WAIT_SECONDS_BUCKETS)),
            joins: Counter::default(),
            reconnects: Counter::default(),
            ended: Family::default(),
            creations: Family::default(),
            sockets,
            workspace_counts: WorkspaceCounts::default(),
            sources: Mutex::default(),
            known: Mutex::default(),
        };
        let registry = &mut inner.registry;
        registry.register("coderd_api_requests_processed", "Requests answered", inner.answers.clone());
        registry.register(
            "coderd_api_request_latencies_seconds",
            "Time from a request to its answer",
            inner.latencies.clone(),
        );
        registry.register(
            "coderd_api_concurrent_requests",
            "Requests that are being answered",
            inner.concurrent.clone(),
        );
        registry.register(
            "coderd_provisioning_job_wait_seconds",
            "Time from the making of a job to its handing out",
            inner.waits.clone(),
        );
        registry.register("coderd_provisioning_daemon_joins", "Connections of daemons", inner.joins.clone());
        registry.register(
            "coderd_provisioning_daemon_reconnects",
            "Connections of daemons that were known already",
            inner.reconnects.clone(),
        );
        registry.register(
            "coderd_provisioning_jobs_given_up",
            "Jobs that the server ended, by reason",
            inner.ended.clone(),
        );
        registry.register("coderd_workspace_creation", "Workspaces made", inner.creations.clone());
        Self(Arc::new(inner))
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// A request begins. `path` is the template of its route, `None` for an unknown path.
    #[must_use]
    pub fn request(&self, method: &Method, path: Option<&str>) -> CountedRequest {
        let route = RouteLabels { method: word(method), path: path.unwrap_or("(none)").to_owned() };
        self.0.concurrent.get_or_create(&route).inc();
        CountedRequest { metrics: self.clone(), route, started: Instant::now() }
    }

    /// A daemon has joined. `again` means that its row existed.
    pub fn joined(&self, again: bool) {
        self.0.joins.inc();
        if again {
            self.0.reconnects.inc();
        }
    }

    /// A job was handed out after this wait.
    pub fn handed_out(&self, organization: OrganizationId, tags: &TagSet, waited: Duration) {
        self.0.waits.get_or_create(&self.set(organization, tags)).observe(waited.as_secs_f64());
    }

    /// A WebSocket is opened at this route; it counts until the result is dropped.
    pub fn socket(&self, path: &'static str) -> OpenSocket {
        self.0.sockets.open(path)
    }

    /// A workspace was made.
    pub fn workspace_made(&self, organization: &str, template: &str, preset: &str) {
        let labels = WorkspaceCreationLabels {
            organization_name: organization.to_owned(),
            template_name: template.to_owned(),
            preset_name: preset.to_owned(),
        };
        self.0.creations.get_or_create(&labels).inc();
    }

    /// Adds metrics to each scrape: whole families in the text form of OpenMetrics, with names that are not in use.
    pub fn add_source(&self, source: impl Fn() -> String + Send + Sync + 'static) {
        self.0.sources.lock().push(Box::new(source));
    }

    /// The server ended a job that its daemon did not end.
    pub fn job_ended_by_server(&self, reason: &'static str) {
        self.0.ended.get_or_create(&ReasonLabels { reason }).inc();
    }

    fn set(&self, organization: OrganizationId, tags: &TagSet) -> TagSetLabels {
        let set = TagSetLabels { organization_id: organization.to_string(), tags: tags.to_string() };
        let mut known = self.0.known.lock();
        if known.contains(&set) || (known.len() < MAX_TAG_SETS && known.insert(set.clone())) {
            return set;
        }
        TagSetLabels { organization_id: String::new(), tags: OTHER_TAG_SETS.to_owned() }
    }
}

/// A request in progress; it counts until it is dropped.
#[derive(Debug)]
pub struct CountedRequest {
    metrics: Metrics,
    route: RouteLabels,
    started: Instant,
}

impl CountedRequest {
    /// The response is ready.
    pub fn answered(self, status: StatusCode) {
        let inner = &*self.metrics.0;
        let RouteLabels { method, path } = self.route.clone();
        inner.answers.get_or_create(&ResponseLabels { code: status.as_u16(), method, path }).inc();
        inner.latencies.get_or_create(&self.route).observe(self.started.elapsed().as_secs_f64());
    }
}

impl Drop for CountedRequest {
    fn drop(&mut self) {
        self.metrics.0.concurrent.get_or_create(&self.route).dec();
    }
}

/// The label of a method. Clients can invent methods, so unknown ones share a label.
fn word(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "(other)",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use coder_domain::ids::UserId;

    use super::*;

    #[test]
    fn labels_that_others_choose_are_bounded() {
        let metrics = Metrics::default();
        for number in 0..MAX_TAG_SETS + 50 {
            let tags = BTreeMap::from([("n".to_owned(), number.to_string())]);
            let tags = TagSet::canonical(UserId::NIL, [&tags]);
            metrics.handed_out(OrganizationId::NIL, &tags, Duration::from_secs(1));
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &metrics.0.registry).unwrap();
        let series =
            text.lines().filter(|line| line.starts_with("coderd_provisioning_job_wait_seconds_count"));
        assert_eq!(series.count(), MAX_TAG_SETS + 1);
        let others = "coderd_provisioning_job_wait_seconds_count{organization_id=\"\",tags=\"(others)\"} 50";
        assert!(text.contains(others), "{text}");
    }

    #[test]
    fn a_request_counts_while_it_is_answered_and_once_after() {
        let metrics = Metrics::default();
        let request = metrics.request(&Method::GET, Some("/api/v2/users/{user}"));
        let show = || {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &metrics.0.registry).unwrap();
            text
        };
        let now = "coderd_api_concurrent_requests{method=\"GET\",path=\"/api/v2/users/{user}\"}";
        assert!(show().contains(&format!("{now} 1")));
        request.answered(StatusCode::NOT_FOUND);
        let text = show();
        assert!(text.contains(&format!("{now} 0")), "{text}");
        let total = "coderd_api_requests_processed_total{code=\"404\",method=\"GET\",path=\"/api/v2/users/{user}\"} 1";
        assert!(text.contains(total), "{text}");
        drop(metrics.request(&Method::from_bytes(b"BREW").unwrap(), None));
        assert!(show().contains("{method=\"(other)\",path=\"(none)\"} 0"));
    }
}
