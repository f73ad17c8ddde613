//! Provisioner daemons as lists show them, and how many of them match a job.

use coder_domain::Timestamp;
use coder_domain::ids::{DaemonId, JobId, KeyId, OrganizationId};
use coder_domain::job::Status;
use coder_domain::tags::TagSet;
use serde::{Deserialize, Serialize};

use crate::json::nullable;

string_enums! {
    /// What a daemon is doing.
    pub enum DaemonStatus {
        Offline = "offline",
        Idle = "idle",
        Busy = "busy",
    }

    /// How a daemon's version compares with the server's; not part of the official API.
    pub enum VersionSkew {
        Same = "same",
        Behind = "behind",
        Ahead = "ahead",
        Unknown = "unknown",
    }

    /// What runs a job.
    pub enum ProvisionerType {
        Terraform = "terraform",
        Echo = "echo",
    }
}

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
    /// Not official: from our servers only, and only in lists of daemons.
    #[serde(flatten)]
    pub extras: Option<DaemonExtras>,
}

/// Fields of a daemon that only our servers send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonExtras {
    /// How many jobs it runs at once.
    pub slots: i64,
    /// How many it runs now.
    pub busy_slots: i64,
    /// Whether it accepts no more jobs.
    pub draining: bool,
    /// Why it can run no jobs, in a few words; empty if it can, or did not report it.
    #[serde(default)]
    pub problem: String,
    /// What failed, and what to do about it.
    #[serde(default)]
    pub problem_detail: String,
    /// Its build against the server's, by major and minor version.
    pub version_skew: VersionSkew,
    /// Its protocol version against the server's.
    pub api_version_skew: VersionSkew,
}

/// The daemons that were drained or undrained; not part of the official API.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainResponse {
    /// Their rows.
    #[serde(deserialize_with = "nullable")]
    pub daemons: Vec<DaemonId>,
    /// How many of their connections were notified at once. `told` is the name of earlier releases.
    #[serde(alias = "told")]
    pub notified: u64,
}

/// The present or previous job of a daemon.
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

/// How many daemons could run a job (http-api 5.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MatchedProvisioners {
    /// Daemons whose tags match, stale ones too.
    pub count: i64,
    /// Those of them that are online.
    pub available: i64,
    /// None if none was ever seen.
    pub most_recently_seen: Option<Timestamp>,
}
