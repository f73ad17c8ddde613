//! The operator's metrics. Those of pools come from what is known at the time of a scrape.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::crd::CoderProvisioner;
use crate::queue::{Demand, PoolId};
use kube::ResourceExt as _;

const BUCKETS: [f64; 7] = [0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    namespace: String,
    provisioner: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

type PoolGauge = Family<PoolLabels, Gauge<f64, AtomicU64>>;

struct Inner {
    registry: Registry,
    passes: Histogram,
    errors: Counter,
    failures: Family<ReasonLabels, Counter>,
    rotations: Counter,
    scalings: Counter,
    leading: Gauge,
    pools: [(&'static str, PoolGauge); 8],
}

/// The metrics; cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("coder_operator");
        let passes = Histogram::new(BUCKETS);
        let (errors, rotations, scalings) = (Counter::default(), Counter::default(), Counter::default());
        let failures = Family::default();
        let leading = Gauge::default();
        registry.register("reconcile_seconds", "Duration of passes over a resource", passes.clone());
        registry.register("reconcile_errors", "Passes whose result could not be written", errors.clone());
        registry.register("reconcile_failures", "Passes that ended early, by reason", failures.clone());
        registry.register("key_rotations", "Provisioner keys that were made", rotations.clone());
        registry.register("scalings", "Changes of the number of daemons", scalings.clone());
        registry.register("leading", "1 in the operator that works, 0 in the others", leading.clone());
        let pools = [
            ("pool_desired", "Daemons that a pool should have"),
            ("pool_ready", "Pods of a pool that are ready"),
            ("pool_connected", "Daemons of a pool that are connected"),
            ("pool_busy", "Daemons of a pool that run a job"),
            ("pool_idle", "Connected daemons of a pool without a job"),
            ("pool_waiting", "Waiting jobs that a pool has to run"),
            ("pool_pending_matching", "Waiting jobs that a pool could run"),
            ("pool_oldest_pending_seconds", "Age of the oldest waiting job that a pool could run"),
        ]
        .map(|(name, help)| {
            let family = PoolGauge::default();
            registry.register(name, help, family.clone());
            (name, family)
        });
        Self(Arc::new(Inner { registry, passes, errors, failures, rotations, scalings, leading, pools }))
    }
}

impl Metrics {
    pub(crate) fn pass(&self, took: Duration, is_ok: bool) {
        self.0.passes.observe(took.as_secs_f64());
        if !is_ok {
            self.0.errors.inc();
        }
    }

    pub(crate) fn failed(&self, reason: &'static str) {
        self.0.failures.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn rotation(&self) {
        self.0.rotations.inc();
    }

    pub(crate) fn scaled(&self) {
        self.0.scalings.inc();
    }

    pub(crate) fn leading(&self, is_leader: bool) {
        self.0.leading.set(i64::from(is_leader));
    }

    /// The text of a scrape.
    pub(crate) fn render(
        &self,
        pools: &[Arc<CoderProvisioner>],
        demands: &[(PoolId, Arc<Demand>)],
        now: Timestamp,
    ) -> String {
        for (_, family) in &self.0.pools {
            family.clear();
        }
        for pool in pools {
            let id = (pool.namespace().unwrap_or_default(), pool.name_any());
            let demand = demands.iter().find(|(known, _)| *known == id).map(|(_, demand)| demand);
            let labels = PoolLabels { namespace: id.0, provisioner: id.1 };
            let Some(status) = &pool.status else { continue };
            let oldest = demand
                .and_then(|demand| demand.oldest)
                .map_or(0.0, |oldest| now.duration_since(oldest).as_secs_f64());
            let values = [
                f64::from(status.desired_replicas),
                f64::from(status.ready_replicas),
                f64::from(status.connected),
                f64::from(status.busy),
                f64::from(status.connected - status.busy),
                f64::from(status.waiting_jobs),
                f64::from(demand.map_or(0, |demand| u32::try_from(demand.matching).unwrap_or(u32::MAX))),
                oldest,
            ];
            for ((_, family), value) in self.0.pools.iter().zip(values) {
                family.get_or_create(&labels).set(value);
            }
        }
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("a String takes everything");
        text
    }
}
