//! Workspaces by the status of their latest build, and active users. Counting reads every workspace, so it runs at most
//! once a minute.

use coder_domain::Timestamp;
use coder_store::counts::{self, LatestBuilds};
use coder_store::{Error, Tx};
use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How old the numbers may be.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(1);
/// Most combinations of labels.
const MAX_GROUPS: i64 = 1000;
/// Every status, so that a series does not vanish when it is zero.
const STATUSES: [&str; 6] = ["pending", "running", "succeeded", "canceling", "canceled", "failed"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildStatusLabels {
    status: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LatestBuildLabels {
    status: String,
    template_name: String,
    template_version: String,
    workspace_owner: String,
    workspace_transition: &'static str,
}

#[derive(Clone)]
struct Counted {
    at: Timestamp,
    by_status: Vec<(String, i64)>,
    latest: Vec<LatestBuilds>,
    active_users: i64,
}

/// The newest numbers.
#[derive(Default)]
pub(super) struct WorkspaceCounts(Mutex<Option<Counted>>);

impl WorkspaceCounts {
    /// Adds the numbers to a scrape, and counts again when they are old.
    pub(super) async fn add(
        &self,
        registry: &mut Registry,
        tx: &mut Tx,
        now: Timestamp,
    ) -> Result<(), Error> {
        let kept = self.0.lock().clone();
        let counted = match kept.filter(|kept| now.duration_since(kept.at).abs() < MAX_AGE) {
            Some(kept) => kept,
            None => {
                let hour = now.checked_sub(SignedDuration::from_hours(1)).unwrap_or(now);
                let counted = Counted {
                    at: now,
                    by_status: counts::workspaces_by_status(tx).await?,
                    latest: counts::latest_builds(tx, MAX_GROUPS).await?,
                    active_users: counts::active_users(tx, hour).await?,
                };
                *self.0.lock() = Some(counted.clone());
                counted
            }
        };
        register_counts(registry, counted);
        Ok(())
    }
}

fn register_counts(registry: &mut Registry, counted: Counted) {
    let by_status: Family<BuildStatusLabels, Gauge> = Family::default();
    for status in STATUSES {
        by_status.get_or_create(&BuildStatusLabels { status: status.to_owned() }).set(0);
    }
    for (status, count) in counted.by_status {
        by_status.get_or_create(&BuildStatusLabels { status }).set(count);
    }
    registry.register(
        "coderd_api_workspace_latest_build",
        "Workspaces by the status of their latest build",
        by_status,
    );
    let latest: Family<LatestBuildLabels, Gauge> = Family::default();
    for group in counted.latest {
        let labels = LatestBuildLabels {
            status: group.status,
            template_name: group.template_name,
            template_version: group.template_version,
            workspace_owner: group.workspace_owner,
            workspace_transition: group.transition.as_str(),
        };
        latest.get_or_create(&labels).inc_by(group.total);
    }
    registry.register(
        "coderd_workspace_latest_build_status",
        "Workspaces by their latest build, template and owner",
        latest,
    );
    let active: Gauge = Gauge::default();
    active.set(counted.active_users);
    registry.register("coderd_api_active_users_duration_hour", "Users seen in the last hour", active);
}
