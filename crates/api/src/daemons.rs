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

    /// How a daemon's version compares with the server's; ours.
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
    /// Beside the official fields, from our servers only, and only in lists of daemons.
    #[serde(flatten)]
    pub extras: Option<DaemonExtras>,
}

/// What our server says of a daemon beyond the official fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonExtras {
    /// How many jobs it runs at once.
    pub slots: i64,
    /// How many it runs now.
    pub busy_slots: i64,
    /// Whether it takes no more jobs.
    pub draining: bool,
    /// Why it can run no jobs, in a few words; empty when it can, or did not say.
    #[serde(default)]
    pub problem: String,
    /// What failed there, and what to do about it.
    #[serde(default)]
    pub problem_detail: String,
    /// Its build against the server's, by major and minor version.
    pub version_skew: VersionSkew,
    /// Its protocol version against the server's.
    pub api_version_skew: VersionSkew,
}

/// Which daemons were asked to take no more jobs and to leave; ours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DrainResponse {
    /// Their rows.
    #[serde(deserialize_with = "nullable")]
    pub daemons: Vec<DaemonId>,
    /// How many connections were told at once.
    pub told: u64,
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
