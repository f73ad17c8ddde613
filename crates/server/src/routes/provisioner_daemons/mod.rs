//! Provisioner daemons: the endpoint they join at, and the list of them.

mod list;
mod serve;

use coder_api::daemons::{ProvisionerDaemon, ProvisionerType};
use coder_store::daemons::Daemon;

pub use list::{limit, list, tags, words};
pub use serve::serve;

/// How a daemon looks where nothing is said about its jobs (http-api 11).
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
    }
}
