//! Provisioner daemons as lists show them, and how many of them match a job.

use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId};
use coder_domain::job::Status;
use coder_domain::tags::TagSet;
use serde::{Deserialize, Serialize};

use crate::json::nullable;

words! {
    /// What a daemon is doing.
    pub enum DaemonStatus {
        Offline = "offline",
        Idle = "idle",
        Busy = "busy",
    }

    /// What runs a job.
    pub enum ProvisionerType {
        Terraform = "terraform",
        Echo = "echo",
    }
}

/// A daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerDaemon {
    pub id: DaemonId,
    pub organization_id: OrganizationId,
    #[serde(default)]
    pub key_id: KeyId,
    pub created_at: Timestamp,
    #[serde(default)]
    pub last_seen_at: Option<Timestamp>,
    pub name: String,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub api_version: String,
    #[serde(default, deserialize_with = "nullable")]
    pub provisioners: Vec<ProvisionerType>,
    #[serde(default, deserialize_with = "nullable")]
    pub tags: TagSet,
    /// None outside the daemon list, as the next three.
    #[serde(default)]
    pub key_name: Option<String>,
    #[serde(default)]
    pub status: Option<DaemonStatus>,
    #[serde(default)]
    pub current_job: Option<ProvisionerDaemonJob>,
    #[serde(default)]
    pub previous_job: Option<ProvisionerDaemonJob>,
}

/// A job next to the daemon that has, or had, it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProvisionerDaemonJob {
    pub id: JobId,
    pub status: Status,
    #[serde(default)]
    pub template_name: String,
    #[serde(default)]
    pub template_icon: String,
    #[serde(default)]
    pub template_display_name: String,
}

/// How many daemons could take a job (http-api 5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MatchedProvisioners {
    /// Daemons whose tags match, stale ones too.
    pub count: i64,
    /// Those of them that are online.
    pub available: i64,
    /// None when none was ever seen.
    pub most_recently_seen: Option<Timestamp>,
}
