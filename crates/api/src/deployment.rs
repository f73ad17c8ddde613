//! Information of a server about itself.

use std::collections::BTreeMap;

use coder_domain::Timestamp;
use serde::{Deserialize, Serialize};

use crate::json::nullable;

string_enums! {
    /// Whether a feature may be used.
    pub enum Entitlement {
        NotEntitled = "not_entitled",
        Entitled = "entitled",
        GracePeriod = "grace_period",
    }
}

/// The feature that external daemons need.
pub const EXTERNAL_PROVISIONER_DAEMONS: &str = "external_provisioner_daemons";

/// Every feature name that clients know (http-api 5.7).
pub const FEATURES: &[&str] = &[
    "user_limit",
    "audit_log",
    "connection_log",
    "browser_only",
    "scim",
    "template_rbac",
    "user_role_management",
    "high_availability",
    "multiple_external_auth",
    EXTERNAL_PROVISIONER_DAEMONS,
    "appearance",
    "advanced_template_scheduling",
    "workspace_proxy",
    "external_token_encryption",
    "workspace_batch_actions",
    "task_batch_actions",
    "access_control",
    "control_shared_ports",
    "custom_roles",
    "multiple_organizations",
    "workspace_prebuilds",
    "managed_agent_limit",
    "workspace_external_agent",
    "aibridge",
    "boundary",
    "ai_governance_user_limit",
];

/// Versions and addresses, which need no authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BuildInfo {
    pub external_url: String,
    pub version: String,
    pub dashboard_url: String,
    pub telemetry: bool,
    pub workspace_proxy: bool,
    pub agent_api_version: String,
    /// The daemon protocol the server speaks, `1.14`.
    pub provisioner_api_version: String,
    pub upgrade_message: String,
    pub deployment_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub webpush_public_key: String,
}

/// Features and whether they may be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entitlements {
    pub features: BTreeMap<String, Feature>,
    #[serde(default, deserialize_with = "nullable")]
    pub warnings: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub errors: Vec<String>,
    #[serde(default)]
    pub has_license: bool,
    #[serde(default)]
    pub trial: bool,
    #[serde(default)]
    pub require_telemetry: bool,
    pub refreshed_at: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Feature {
    pub entitlement: Entitlement,
    pub enabled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<i64>,
}

/// How the product presents itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Appearance {
    pub application_name: String,
    pub logo_url: String,
    pub docs_url: String,
    pub service_banner: Banner,
    #[serde(deserialize_with = "nullable")]
    pub announcement_banners: Vec<Banner>,
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub support_links: Vec<SupportLink>,
}

/// A line of text above everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Banner {
    pub enabled: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub background_color: String,
}

/// A link in a menu.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SupportLink {
    pub name: String,
    pub target: String,
    pub icon: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub location: String,
}

/// The settings for `config-ssh`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SshConfig {
    pub hostname_prefix: String,
    pub hostname_suffix: String,
    #[serde(deserialize_with = "nullable")]
    pub ssh_config_options: BTreeMap<String, String>,
}

impl Default for SshConfig {
    fn default() -> Self {
        Self {
            hostname_prefix: "coder.".to_owned(),
            hostname_suffix: "coder".to_owned(),
            ssh_config_options: BTreeMap::new(),
        }
    }
}

/// The places from which workspaces are reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Regions {
    #[serde(deserialize_with = "nullable")]
    pub regions: Vec<Region>,
}

/// One place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Region {
    pub id: uuid::Uuid,
    pub name: String,
    pub display_name: String,
    pub icon_url: String,
    pub healthy: bool,
    pub path_app_url: String,
    pub wildcard_hostname: String,
}

/// Where apps of workspaces have host names of their own; empty when they have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApplicationsHost {
    pub host: String,
}

/// Whether a newer release exists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UpdateCheck {
    pub current: bool,
    pub version: String,
    pub url: String,
}

/// Body of the plain-text health probe.
pub const HEALTHY: &str = "OK";

/// How to reach an agent over the overlay network (agent 3.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentConnectionInfo {
    /// The DERP map, which the crate `tailnet` reads and writes.
    pub derp_map: serde_json::Value,
    pub derp_force_websockets: bool,
    pub disable_direct_connections: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname_suffix: String,
}
