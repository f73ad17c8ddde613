//! How many daemons a pool has.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// The number of daemons follows the queue: busy daemons, plus waiting jobs that this pool can run, plus `minIdle`,
/// between `minReplicas` and `maxReplicas`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minReplicas <= self.maxReplicas").message("minReplicas must not be greater than maxReplicas"))]
pub struct Autoscaling {
    /// Fewest daemons; 0 lets the pool disappear while it is not needed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10000))]
    pub min_replicas: i32,
    /// Most daemons.
    #[schemars(range(min = 1, max = 10000))]
    pub max_replicas: i32,
    /// Daemons that wait for jobs in addition to those that are needed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 10000))]
    pub min_idle: i32,
    /// How often the queue is read, in seconds. All pools of one control plane share one reader, which uses the least value.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 300))]
    pub poll_seconds: i32,
    /// Limits on growing.
    #[serde(default)]
    pub scale_up: ScaleUp,
    /// Limits on shrinking.
    #[serde(default)]
    pub scale_down: ScaleDown,
    /// Times with another `minReplicas`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub schedules: Vec<Schedule>,
}

/// Limits on growing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleUp {
    /// How long more daemons must be needed before they are started, in seconds.
    #[serde(default)]
    #[schemars(range(min = 0, max = 3600))]
    pub stabilization_seconds: i32,
    /// Most daemons that are added at once; the next are added when these are ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10000))]
    pub max_step: Option<i32>,
}

/// Limits on shrinking.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDown {
    /// How long daemons must be unneeded before they are removed, in seconds.
    #[serde(default = "five_minutes")]
    #[schemars(range(min = 0, max = 86400))]
    pub stabilization_seconds: i32,
}

impl Default for ScaleDown {
    fn default() -> Self {
        Self { stabilization_seconds: five_minutes() }
    }
}

/// A recurring time with another `minReplicas`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// When it begins: minute, hour, day of the month, month, day of the week, as in cron.
    #[schemars(length(min = 9, max = 128))]
    pub cron: String,
    /// Time zone of `cron`, for example `Europe/Berlin`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// How long it lasts, in seconds.
    #[schemars(range(min = 60, max = 604_800))]
    pub duration_seconds: i32,
    /// Fewest daemons in this time; `maxReplicas` still holds. When several schedules apply, the greatest counts.
    #[schemars(range(min = 0, max = 10000))]
    pub min_replicas: i32,
}

const fn one() -> i32 {
    1
}

const fn five_minutes() -> i32 {
    300
}

fn utc() -> String {
    "UTC".to_owned()
}
