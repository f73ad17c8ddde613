//! The current status of a daemon, for health endpoints and tests.

use coder_wire::extension::Extensions;
use tokio::sync::watch;

use super::health::Health;
use crate::isolation::IsolationLevel;
use crate::metrics::Metrics;

/// A snapshot of a daemon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Connected to the server.
    pub connected: bool,
    /// Ids of the running jobs.
    pub jobs: Vec<String>,
    /// How many jobs may run at once.
    pub slots: usize,
    /// No new job is acquired.
    pub draining: bool,
    /// Whether jobs can run; none is acquired until they can.
    pub health: Health,
    /// Why the last attempt to connect failed; cleared by a success.
    pub last_error: Option<String>,
    /// Jobs acquired since the start.
    pub jobs_started: u64,
    /// Connections after the first.
    pub reconnects: u64,
    /// What the server of the current or latest connection granted.
    pub extensions: Extensions,
    /// How jobs are isolated.
    pub isolation: IsolationLevel,
    /// How each resource limit of jobs is enforced on this machine; empty without limits.
    pub limits: Vec<String>,
}

impl Status {
    /// At least one job is running.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether an orchestrator should keep this daemon: a busy one stays ready while it reconnects or has lost
    /// Terraform, because orchestrators remove those that are not ready first (docs/extensions.md, daemon
    /// HTTP).
    pub fn is_ready(&self) -> bool {
        !self.draining && (self.is_busy() || (self.connected && self.health.problem().is_none()))
    }
}

/// Follows a daemon's status and metrics; clones share it.
#[derive(Debug, Clone)]
pub struct StatusHandle {
    receiver: watch::Receiver<Status>,
    metrics: Metrics,
}

impl StatusHandle {
    pub(crate) fn new(receiver: watch::Receiver<Status>, metrics: Metrics) -> Self {
        Self { receiver, metrics }
    }

    /// The current metrics in the OpenMetrics text format.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.metrics.render(&self.get())
    }

    pub fn get(&self) -> Status {
        self.receiver.borrow().clone()
    }

    /// Waits until `wanted` accepts the status. `None` when the daemon ends before that.
    pub async fn wait_for(&self, wanted: impl FnMut(&Status) -> bool) -> Option<Status> {
        let mut receiver = self.receiver.clone();
        receiver.wait_for(wanted).await.ok().map(|status| status.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_daemon_stays_ready_without_a_connection() {
        let mut status = Status::default();
        assert!(!status.is_ready());
        status.jobs.push("j".to_owned());
        assert!(status.is_ready() && status.is_busy());
        status.draining = true;
        assert!(!status.is_ready());
    }

    #[test]
    fn an_idle_daemon_that_can_run_nothing_is_not_ready() {
        let problem = crate::daemon::health::HealthProblem {
            summary: "no Terraform".to_owned(),
            detail: String::new(),
        };
        let health = Health::Unhealthy(problem);
        let mut status = Status { connected: true, health, ..Status::default() };
        assert!(!status.is_ready());
        status.jobs.push("j".to_owned());
        assert!(status.is_ready());
        status.jobs.clear();
        status.health = Health::Ready;
        assert!(status.is_ready());
    }
}
