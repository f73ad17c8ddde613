//! WebSockets: how many are open, and how long they were (scheduling-and-auth 6.2).

use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Histograms of durations in seconds.
pub(super) type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

/// Seconds that a WebSocket may be open.
const OPEN_SECONDS_BUCKETS: [f64; 6] = [0.001, 1.0, 60.0, 3600.0, 54000.0, 108_000.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: &'static str,
}

/// The counts.
#[derive(Clone)]
pub(super) struct Sockets {
    open: Family<PathLabels, Gauge>,
    durations: Durations<PathLabels>,
}

impl Sockets {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let sockets = Self {
            open: Family::default(),
            durations: Durations::new_with_constructor(|| Histogram::new(OPEN_SECONDS_BUCKETS)),
        };
        // Registered at the start, so that a dashboard shows zero instead of no data.
        sockets.open.get_or_create(&PathLabels { path: coder_api::paths::SERVE }).set(0);
        registry.register("coderd_api_concurrent_websockets", "Open WebSockets here", sockets.open.clone());
        registry.register(
            "coderd_api_websocket_durations_seconds",
            "How long WebSockets were open",
            sockets.durations.clone(),
        );
        sockets
    }

    /// One is opened at this route.
    pub(super) fn open(&self, path: &'static str) -> OpenSocket {
        self.open.get_or_create(&PathLabels { path }).inc();
        OpenSocket { counts: self.clone(), path, since: Instant::now() }
    }
}

/// A WebSocket that is open until this is dropped.
#[must_use = "it counts as closed once this is dropped"]
pub struct OpenSocket {
    counts: Sockets,
    path: &'static str,
    since: Instant,
}

impl Drop for OpenSocket {
    fn drop(&mut self) {
        let labels = PathLabels { path: self.path };
        self.counts.open.get_or_create(&labels).dec();
        self.counts.durations.get_or_create(&labels).observe(self.since.elapsed().as_secs_f64());
    }
}
