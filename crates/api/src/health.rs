//! The health report, of which this server fills the parts that it has (scheduling-and-auth 4.5).

use coder_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::daemons::ProvisionerDaemon;
use crate::json::nullable;

string_enums! {
    /// How bad it is.
    pub enum Severity {
        Ok = "ok",
        Warning = "warning",
        Error = "error",
    }
}

/// Something worth knowing, with its stable code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HealthMessage {
    pub code: String,
    pub message: String,
}

/// The whole report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HealthReport {
    pub time: Timestamp,
    pub healthy: bool,
    pub severity: Severity,
    pub database: DatabaseHealth,
    pub provisioner_daemons: DaemonsHealth,
    #[serde(default)]
    pub coder_version: String,
}

/// Whether the database answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DatabaseHealth {
    pub healthy: bool,
    pub reachable: bool,
    pub severity: Severity,
    #[serde(deserialize_with = "nullable")]
    pub warnings: Vec<HealthMessage>,
    pub dismissed: bool,
    /// As the duration of Go: `1.5ms`.
    pub latency: String,
    pub latency_ms: i64,
    pub threshold_ms: i64,
    pub error: Option<String>,
}

/// The daemons of the whole deployment that were seen lately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonsHealth {
    pub severity: Severity,
    #[serde(deserialize_with = "nullable")]
    pub warnings: Vec<HealthMessage>,
    pub dismissed: bool,
    pub error: Option<String>,
    #[serde(deserialize_with = "nullable")]
    pub items: Vec<DaemonHealth>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonHealth {
    pub provisioner_daemon: ProvisionerDaemon,
    #[serde(default, deserialize_with = "nullable")]
    pub warnings: Vec<HealthMessage>,
}
