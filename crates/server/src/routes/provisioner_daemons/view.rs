//! Converts daemons to the API type.

use coder_api::daemons::{DaemonExtras, ProvisionerDaemon, ProvisionerType};
use coder_store::daemons::Daemon;

use super::skew;

/// A daemon without its jobs (http-api 11).
pub fn view(daemon: Daemon) -> ProvisionerDaemon {
    ProvisionerDaemon {
        id: daemon.id,
        organization_id: daemon.organization_id,
        key_id: daemon.key_id,
        created_at: daemon.created_at,
        last_seen_at: daemon.last_seen_at,
        name: daemon.name,
        version: daemon.version,
        api_version: daemon.api_version,
        provisioners: daemon.provisioners.iter().map(|kind| ProvisionerType::from(kind.as_str())).collect(),
        tags: daemon.tags,
        key_name: None,
        status: None,
        current_job: None,
        previous_job: None,
        extras: None,
    }
}

/// The fields beyond the official ones. `held` is the number of jobs in the database: an official daemon does not report it.
pub fn extras(daemon: &Daemon, held: usize, server_version: &str) -> DaemonExtras {
    DaemonExtras {
        slots: daemon.slots,
        busy_slots: daemon.busy.max(i64::try_from(held).unwrap_or(i64::MAX)),
        draining: daemon.draining,
        problem: daemon.problem.clone(),
        problem_detail: daemon.problem_detail.clone(),
        version_skew: skew::build(&daemon.version, server_version),
        api_version_skew: skew::api(&daemon.api_version),
    }
}
