//! The status of a `CoderProvisioner`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// What the operator observed and did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderProvisionerStatus {
    /// Generation of the specification that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Pending`, `Ready`, `ScaledToZero`, `Paused` or `Deleting`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,
    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// Pods that should exist.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Selects the pods, for the scale subresource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
    /// Daemons that are connected to the server.
    #[serde(default)]
    pub connected: i32,
    /// Daemons that run a job.
    #[serde(default)]
    pub busy: i32,
    /// Waiting jobs that this pool has to run.
    #[serde(default)]
    pub waiting_jobs: i32,
    /// The state of each part, and `Ready` as the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Id of the organization.
    #[serde(rename = "organizationID", skip_serializing_if = "Option::is_none")]
    pub organization_id: Option<String>,
    /// Name of the organization.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub organization_name: Option<String>,
    /// Id of the current key.
    #[serde(rename = "provisionerKeyID", skip_serializing_if = "Option::is_none")]
    pub provisioner_key_id: Option<String>,
    /// Name of the current key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provisioner_key_name: Option<String>,
    /// Hash of the tags of the current key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags_hash: Option<String>,
    /// Name of the control plane of the current key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref_name: Option<String>,
    /// URL that the daemons join.
    #[serde(rename = "controlPlaneURL", skip_serializing_if = "Option::is_none")]
    pub control_plane_url: Option<String>,
    /// The entry with the current key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The keys on the server that belong to this resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyStatus>,
    /// How many keys were made so far; part of the name of the next.
    #[serde(default)]
    pub key_generation: i64,
    /// The last value of the annotation `coder.com/rotate-key` that was acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rotated_for: Option<String>,
    /// What the queue demands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<AutoscalingStatus>,
    /// Since when a change of the pods waits for busy daemons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub update_waits_since: Option<String>,
    /// Other namespaces that have objects of this resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_namespaces: Vec<String>,
    /// The daemons of this pool, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub daemons: Vec<DaemonStatus>,
}

/// An entry of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct SecretReference {
    /// Name of the Secret.
    pub name: String,
    /// Key of the entry.
    #[serde(default)]
    pub key: String,
}

/// A key on the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyStatus {
    /// `Pending`: being made. `Active`: new pods use it. `Retiring`: deleted when no daemon uses it any more.
    pub state: KeyState,
    /// Its name.
    pub name: String,
    /// The beginning of the name as it was wanted when the key was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Its id, once it exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Key of its entry in the Secret.
    pub entry: String,
    /// Beginning of the SHA-256 of the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Id of its organization.
    #[serde(rename = "organizationID", default)]
    pub organization_id: String,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// URL of its server.
    #[serde(default)]
    pub url: String,
    /// Name of its control plane, if it is one of this cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// Id of its deployment; empty if the server does not say it.
    #[serde(rename = "deploymentID", default)]
    pub deployment_id: String,
    /// When it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub created_at: Option<String>,
}

/// The life of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum KeyState {
    #[default]
    Pending,
    Active,
    Retiring,
}

/// What the queue demands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingStatus {
    /// Number of daemons that was decided last.
    #[serde(default)]
    pub desired_replicas: i32,
    /// Since when fewer daemons are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub excess_since: Option<String>,
    /// Since when more daemons are needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub shortage_since: Option<String>,
    /// Most daemons that were needed since then.
    #[serde(default)]
    pub excess_peak: i32,
    /// When the number was changed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub last_scale_time: Option<String>,
}

/// A daemon of this pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// Its pod, which is also its name.
    pub pod: String,
    /// Its id on the server; none if the server does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `Offline`, `Idle`, `Busy` or `Draining`.
    pub state: String,
    /// The job that it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How its version compares with the server's, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_skew: Option<String>,
    /// Why it can run no jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Since when it is offline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub last_seen: Option<String>,
}
