//! `CoderProvisioner`: a pool of provisioner daemons.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::autoscaling::Autoscaling;
use super::provisioner_status::CoderProvisionerStatus;
use super::rbac::Rbac;
use super::reference::{CaBundle, LocalReference, Proxy, PullSecret, SecretEntry};
use super::schema;
use super::variable::Variable;

/// A pool of provisioner daemons with one provisioner key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[expect(clippy::duplicated_attributes, reason = "each column has a type and a path")]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderProvisioner",
    plural = "coderprovisioners",
    singular = "coderprovisioner",
    shortname = "cprov",
    category = "coder",
    namespaced,
    status = "CoderProvisionerStatus",
    derive = "PartialEq",
    doc = "A pool of provisioner daemons.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Desired", type_ = "integer", json_path = ".status.desiredReplicas"),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "Busy", type_ = "integer", json_path = ".status.busy"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waitingJobs"),
    printcolumn(
        name = "Organization",
        type_ = "string",
        json_path = ".status.organizationName",
        priority = 1
    ),
    printcolumn(name = "Key", type_ = "string", json_path = ".status.provisionerKeyName", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.controlPlaneRef) != has(self.coder)").message("give exactly one of controlPlaneRef and coder"),
    validation = Rule::new("!has(self.coder) || has(self.coder.tokenSecretRef) || has(self.key.existingSecretRef)").message("coder.tokenSecretRef is required unless key.existingSecretRef names an existing key"),
    validation = Rule::new("!has(self.tags) || !('scope' in self.tags) || self.tags['scope'] != 'user'").message("the tag scope=user cannot be used: a provisioner key belongs to no user"),
    validation = Rule::new("!has(self.tags) || !has(self.key.existingSecretRef) || size(self.tags) == 0").message("tags cannot be combined with key.existingSecretRef: the tags are those of the key"),
    validation = Rule::new("!has(self.extraEnv) || self.extraEnv.all(v, !(v.name in ['CODER_PROVISIONER_DAEMON_KEY', 'CODER_PROVISIONER_DAEMON_PSK', 'CODER_PROVISIONER_DAEMON_NAME', 'CODER_PROVISIONERD_TAGS', 'CODER_ORGANIZATION']))").message("extraEnv must not set the key, the name, the tags or the organization of the daemons")
)]
pub struct CoderProvisionerSpec {
    /// The `CoderControlPlane` of this namespace that the daemons join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<LocalReference>,
    /// A server that is not a `CoderControlPlane` of this namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub coder: Option<Server>,
    /// Token from an earlier release of the official operator; `controlPlaneRef` has one by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// Name of the organization that the daemons work for.
    #[serde(default = "default_organization")]
    #[schemars(length(max = 128))]
    pub organization_name: String,
    /// The provisioner key.
    #[serde(default)]
    pub key: Key,
    /// Number of daemons, unless `autoscaling` decides it.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 10000))]
    pub replicas: i32,
    /// Lets the number of daemons follow the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
    /// `Pool` keeps daemons that run one job after the other. `Ephemeral` starts a pod for each job, which ends after it.
    #[serde(default)]
    pub mode: Mode,
    /// How pods are replaced when their definition or their key changes.
    #[serde(default)]
    pub update_strategy: UpdateStrategy,
    /// Stops the operator from changing anything for this resource, except when it is deleted.
    #[serde(default)]
    pub paused: bool,
    /// What happens to the provisioner keys when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
    /// Tags of the provisioner key. Daemons run the jobs that have no other tags than these.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 256))]
    pub tags: BTreeMap<String, String>,
    /// Image of the daemons; by default that of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When the image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<PullPolicy>,
    /// Arguments after `coder provisioner start`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Further environment variables; one with the name of a preset variable replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_env: Vec<Variable>,
    /// Resources of the daemon's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<PullSecret>,
    /// How long a daemon may finish its job when its pod is deleted, in seconds. It should be longer than the longest build.
    #[serde(default = "ten_minutes")]
    #[schemars(range(min = 0))]
    pub termination_grace_period_seconds: i64,
    /// The service account of the pods.
    #[serde(default)]
    pub service_account: ServiceAccount,
    /// What templates may do in this cluster.
    #[serde(default)]
    pub rbac: Rbac,
    /// Applied on top of the pod template that the operator makes: maps are merged; lists of containers, volumes,
    /// mounts and variables are merged by name, other lists are replaced. The daemon's container is `provisioner`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::open_object")]
    pub template: Map<String, Value>,
    /// Protects busy daemons from evictions, for example when a node is drained.
    #[serde(default = "yes")]
    pub disruption_budget: bool,
    /// Limits the network of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
}

/// A server that is not a `CoderControlPlane` of this namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Server {
    /// URL of the server, `https://coder.example.com`.
    #[schemars(length(min = 1, max = 2048), regex(pattern = "^https?://"))]
    pub url: String,
    /// API token that may manage provisioner keys and read jobs and daemons; the default key is `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretEntry>,
    /// Further certificate authorities for the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<CaBundle>,
    /// Proxies on the way to the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
}

/// Token from an earlier release of the official operator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// Session token that may manage provisioner keys; the default key is `token`.
    pub credentials_secret_ref: SecretEntry,
}

/// The key of the Secret's entry by default.
const KEY_ENTRY: &str = "key";

/// The provisioner key.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.name) || !(self.name.lowerAscii() in ['built-in', 'user-auth', 'psk'])").message("the key names built-in, user-auth and psk are reserved"),
    validation = Rule::new("!has(self.existingSecretRef) || !(has(self.name) || has(self.secretName) || has(self.rotateAfterSeconds))").message("name, secretName and rotateAfterSeconds cannot be combined with existingSecretRef")
)]
pub struct Key {
    /// Beginning of the key's name on the server, to which each key adds a hash of its own. By default it is made of the
    /// names of the namespace and of this resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = r"^[^\s/\\?#%]+$"))]
    pub name: Option<String>,
    /// Name of the Secret that holds the key; by default `NAME-provisioner-key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub secret_name: Option<String>,
    /// Key of the Secret's entry with the current key. Further entries begin with it.
    #[serde(default = "key_entry")]
    #[schemars(length(min = 1, max = 200), regex(pattern = "^[-._a-zA-Z0-9]+$"))]
    pub secret_key: String,
    /// An existing key instead of one that the operator makes; the default key of the entry is `key`. The Secret is never
    /// changed, and no token for the server is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub existing_secret_ref: Option<SecretEntry>,
    /// Replaces the key when it is this old, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3600))]
    pub rotate_after_seconds: Option<i64>,
}

impl Key {
    /// The key of the Secret's entry; other definitions admit an empty one.
    #[must_use]
    pub fn entry(&self) -> &str {
        if self.secret_key.is_empty() { KEY_ENTRY } else { &self.secret_key }
    }
}

impl Default for Key {
    fn default() -> Self {
        Self {
            name: None,
            secret_name: None,
            secret_key: key_entry(),
            existing_secret_ref: None,
            rotate_after_seconds: None,
        }
    }
}

/// Whether daemons run one job or many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum Mode {
    #[default]
    Pool,
    Ephemeral,
}

/// What happens to the provisioner keys when the resource is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum DeletionPolicy {
    #[default]
    Delete,
    Retain,
}

/// When an image is pulled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// How pods are replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// `RollingUpdate` replaces pods at once; a busy daemon finishes its job within the grace period. `OnIdle` waits until no
    /// daemon of the pool is busy.
    #[serde(default, rename = "type")]
    pub kind: UpdateType,
    /// How long `OnIdle` waits before it replaces the pods nevertheless, in seconds; without it there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 60))]
    pub max_wait_seconds: Option<i64>,
}

/// When pods are replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum UpdateType {
    #[default]
    RollingUpdate,
    OnIdle,
}

/// The service account of the pods.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceAccount {
    /// Name of the service account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Annotations of the service account, for example for identities of a cloud.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Uses an existing service account and does not make one.
    #[serde(default)]
    pub disable_create: bool,
}

/// Limits on the network of the pods.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// Limits what the pods may connect to: DNS, and the rules of `egress`, which must include the server and what Terraform
    /// needs. Incoming connections are always limited to the port of probes and metrics.
    #[serde(default)]
    pub restrict_egress: bool,
    /// Further egress rules, as a `NetworkPolicy` has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::open_list")]
    pub egress: Vec<Value>,
}

const fn yes() -> bool {
    true
}

const fn one() -> i32 {
    1
}

const fn ten_minutes() -> i64 {
    600
}

fn default_organization() -> String {
    "default".to_owned()
}

fn key_entry() -> String {
    KEY_ENTRY.to_owned()
}
