//! The daemon's metrics: those of the official daemon under the same names (scheduling-and-auth 6.1), and our
//! own.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use coder_wire::messages::provisionerd as pb;
use pb::acquired_job::Type;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::daemon::status::Status;

/// Histogram buckets of durations, in seconds.
const BUCKETS: [f64; 8] = [1.0, 10.0, 30.0, 60.0, 300.0, 600.0, 1800.0, 3600.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProvisionerLabels {
    provisioner: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct JobLabels {
    provisioner: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    template_name: String,
    template_version: String,
    workspace_transition: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkspaceLabels {
    workspace_owner: String,
    workspace_name: String,
    template_name: String,
    template_version: String,
    workspace_transition: &'static str,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotLabels {
    state: &'static str,
}

type HistogramFamily<L> = Family<L, Histogram, fn() -> Histogram>;

fn durations() -> Histogram {
    Histogram::new(BUCKETS)
}

struct Inner {
    registry: Registry,
    current: Family<ProvisionerLabels, Gauge>,
    jobs: HistogramFamily<JobLabels>,
    builds: HistogramFamily<BuildLabels>,
    workspace_builds: Family<WorkspaceLabels, Counter>,
    slots: Family<SlotLabels, Gauge>,
    connected: Gauge,
    draining: Gauge,
    healthy: Gauge,
    reconnects: Gauge,
    memory: Gauge,
    files: Gauge,
}

impl Inner {
    fn new() -> Self {
        Self {
            registry: Registry::default(),
            current: Family::default(),
            jobs: HistogramFamily::new_with_constructor(durations),
            builds: HistogramFamily::new_with_constructor(durations),
            workspace_builds: Family::default(),
            slots: Family::default(),
            connected: Gauge::default(),
            draining: Gauge::default(),
            healthy: Gauge::default(),
            reconnects: Gauge::default(),
            memory: Gauge::default(),
            files: Gauge::default(),
        }
    }

    fn register_official(&mut self, count: u32) {
        let daemons: Gauge = Gauge::default();
        daemons.set(i64::from(count));
        let registry = &mut self.registry;
        registry.register("coderd_provisionerd_jobs_current", "Jobs running now", self.current.clone());
        registry.register("coderd_provisionerd_num_daemons", "Daemons in this process", daemons);
        registry.register("coderd_provisionerd_job_timings_seconds", "Duration of jobs", self.jobs.clone());
        registry.register(
            "coderd_provisionerd_workspace_build_timings_seconds",
            "Duration of builds",
            self.builds.clone(),
        );
        registry.register("coderd_workspace_builds", "Builds that ended", self.workspace_builds.clone());
    }

    fn register_own(&mut self) {
        let registry = &mut self.registry;
        registry.register("coderd_provisionerd_slots", "Slots by state", self.slots.clone());
        registry.register(
            "coderd_provisionerd_connected",
            "Whether there is a connection to the server",
            self.connected.clone(),
        );
        registry.register(
            "coderd_provisionerd_draining",
            "Whether no further job is taken",
            self.draining.clone(),
        );
        registry.register("coderd_provisionerd_healthy", "Whether jobs can be run", self.healthy.clone());
        registry.register(
            "coderd_provisionerd_reconnects",
            "Connections after the first",
            self.reconnects.clone(),
        );
        registry.register("process_resident_memory_bytes", "Resident memory", self.memory.clone());
        registry.register("process_open_fds", "Open files", self.files.clone());
    }
}

/// The metrics of one daemon, or of several in one process; clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

impl Metrics {
    /// For daemons inside another program: only the official metrics, for all daemons together, without the
    /// process metrics, which that program exports itself.
    #[must_use]
    pub fn shared(daemons: u32) -> Self {
        let mut inner = Inner::new();
        inner.register_official(daemons);
        Self(Arc::new(inner))
    }

    pub(crate) fn new() -> Self {
        let mut inner = Inner::new();
        inner.register_official(1);
        inner.register_own();
        Self(Arc::new(inner))
    }

    /// All metrics of [`Metrics::shared`] in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("a string takes everything");
        text
    }

    /// Counts the start of a job.
    pub(crate) fn started(&self, job: &pb::AcquiredJob) -> JobTimer {
        let metadata = match &job.r#type {
            Some(Type::WorkspaceBuild(build)) => build.metadata.as_ref(),
            _ => None,
        };
        let build = metadata.map(|metadata| WorkspaceLabels {
            workspace_owner: metadata.workspace_owner.clone(),
            workspace_name: metadata.workspace_name.clone(),
            template_name: metadata.template_name.clone(),
            template_version: metadata.template_version.clone(),
            workspace_transition: metadata.workspace_transition().as_str_name(),
            status: "",
        });
        let provisioner = job.provisioner.clone();
        self.0.current.get_or_create(&ProvisionerLabels { provisioner: provisioner.clone() }).inc();
        JobTimer { metrics: self.clone(), started_at: Instant::now(), provisioner, build }
    }

    /// All metrics in the OpenMetrics text format.
    pub(crate) fn render(&self, status: &Status) -> String {
        let inner = &*self.0;
        let count = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let slot = |state| inner.slots.get_or_create(&SlotLabels { state }).clone();
        slot("busy").set(count(status.jobs.len()));
        slot("free").set(count(status.slots.saturating_sub(status.jobs.len())));
        inner.connected.set(i64::from(status.connected));
        inner.draining.set(i64::from(status.draining));
        inner.healthy.set(i64::from(status.health.problem().is_none()));
        inner.reconnects.set(i64::try_from(status.reconnects).unwrap_or(i64::MAX));
        inner.memory.set(resident_bytes());
        inner.files.set(open_files());
        let mut text = String::new();
        encode(&mut text, &inner.registry).expect("a string takes everything");
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Counts a running job until it is dropped.
pub(crate) struct JobTimer {
    metrics: Metrics,
    started_at: Instant,
    provisioner: String,
    build: Option<WorkspaceLabels>,
}

impl JobTimer {
    /// The job has ended by itself.
    pub(crate) fn ended(self, succeeded: bool) {
        let status = if succeeded { "success" } else { "failed" };
        let seconds = self.started_at.elapsed().as_secs_f64();
        let inner = &*self.metrics.0;
        inner
            .jobs
            .get_or_create(&JobLabels { provisioner: self.provisioner.clone(), status })
            .observe(seconds);
        if let Some(build) = &self.build {
            let labels = BuildLabels {
                template_name: build.template_name.clone(),
                template_version: build.template_version.clone(),
                workspace_transition: build.workspace_transition,
                status,
            };
            inner.builds.get_or_create(&labels).observe(seconds);
            inner.workspace_builds.get_or_create(&WorkspaceLabels { status, ..build.clone() }).inc();
        }
    }
}

impl Drop for JobTimer {
    fn drop(&mut self) {
        let provisioner = self.provisioner.clone();
        self.metrics.0.current.get_or_create(&ProvisionerLabels { provisioner }).dec();
    }
}

fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok());
    kib.unwrap_or(0_i64) * 1024
}

fn open_files() -> i64 {
    std::fs::read_dir("/proc/self/fd").map_or(0, |entries| i64::try_from(entries.count()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use coder_wire::messages::provisioner::{Metadata, WorkspaceTransition};

    use super::*;

    #[test]
    fn daemons_inside_of_a_server_are_counted_together_and_leave_the_process_to_it() {
        let shared = Metrics::shared(3);
        let job = pb::AcquiredJob { provisioner: "terraform".to_owned(), ..Default::default() };
        let (first, second) = (shared.started(&job), shared.clone().started(&job));
        let text = shared.text();
        assert!(text.contains("coderd_provisionerd_num_daemons 3\n"), "{text}");
        assert!(text.contains("coderd_provisionerd_jobs_current{provisioner=\"terraform\"} 2\n"), "{text}");
        assert!(!text.contains("process_") && !text.contains("_slots"), "{text}");
        drop((first, second));
    }

    #[test]
    fn jobs_are_counted_under_the_official_names() {
        let metrics = Metrics::new();
        let mut metadata = Metadata { workspace_name: "dev".to_owned(), ..Metadata::default() };
        metadata.set_workspace_transition(WorkspaceTransition::Stop);
        let build = pb::acquired_job::WorkspaceBuild { metadata: Some(metadata), ..Default::default() };
        let job = pb::AcquiredJob {
            provisioner: "terraform".to_owned(),
            r#type: Some(Type::WorkspaceBuild(build)),
            ..Default::default()
        };
        let status = Status { slots: 3, jobs: vec!["j".to_owned()], connected: true, ..Status::default() };
        let measured = metrics.started(&job);
        let text = metrics.render(&status);
        for line in [
            "coderd_provisionerd_jobs_current{provisioner=\"terraform\"} 1",
            "coderd_provisionerd_num_daemons 1",
            "coderd_provisionerd_slots{state=\"busy\"} 1",
            "coderd_provisionerd_slots{state=\"free\"} 2",
            "coderd_provisionerd_connected 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        measured.ended(false);
        drop(metrics.started(&job));
        let text = metrics.render(&status);
        assert!(text.contains("coderd_provisionerd_jobs_current{provisioner=\"terraform\"} 0"), "{text}");
        assert!(text.contains("workspace_name=\"dev\""), "{text}");
        let count =
            "coderd_provisionerd_job_timings_seconds_count{provisioner=\"terraform\",status=\"failed\"} 1";
        assert!(text.contains(count), "a job that was given up has no duration\n{text}");
        assert!(text.contains("workspace_transition=\"STOP\",status=\"failed\"} 1"), "{text}");
        assert!(text.contains("coderd_workspace_builds_total{"), "{text}");
    }
}
