//! `CoderControlPlane`: a server that runs in this cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ResourceRequirements;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::provisioner::ServiceAccount;
use super::provisioner_status::SecretReference;
use super::rbac::Rbac;
use super::reference::{PullSecret, SecretEntry};
use super::schema;
use super::variable::Variable;

/// A server that runs in this cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, CustomResource, KubeSchema)]
#[expect(clippy::duplicated_attributes, reason = "each column has a type and a path")]
#[kube(
    group = "coder.com",
    version = "v1alpha1",
    kind = "CoderControlPlane",
    plural = "codercontrolplanes",
    singular = "codercontrolplane",
    shortname = "ccp",
    category = "coder",
    namespaced,
    status = "CoderControlPlaneStatus",
    derive = "PartialEq",
    doc = "A server that runs in this cluster.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.readyReplicas"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("!has(self.database) || !has(self.database.storage) || self.replicas <= 1").message("an embedded database allows one replica: set database.urlSecretRef or CODER_PG_CONNECTION_URL in extraEnv")
)]
pub struct CoderControlPlaneSpec {
    /// Image of the server.
    #[serde(default = "image")]
    pub image: String,
    /// Number of servers; more than one needs Postgres.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 100))]
    pub replicas: i32,
    /// Where the database is. Without it `extraEnv` must set `CODER_PG_CONNECTION_URL`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<Database>,
    /// URL at which people reach the server; by default that of the Service.
    #[serde(rename = "accessURL", skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^https?://"))]
    pub access_url: Option<String>,
    /// The Service in front of the servers.
    #[serde(default)]
    pub service: Service,
    /// Serves HTTPS with these certificates.
    #[serde(default)]
    pub tls: Tls,
    /// The token with which pools are managed.
    #[serde(default)]
    pub operator_access: OperatorAccess,
    /// Arguments after `coder server`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_args: Vec<String>,
    /// Further environment variables; one with the name of a preset variable replaces it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::environment")]
    pub extra_env: Vec<Variable>,
    /// Resources of the server's container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::resources")]
    pub resources: Option<ResourceRequirements>,
    /// Secrets for pulling the image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_pull_secrets: Vec<PullSecret>,
    /// The service account of the pods.
    #[serde(default)]
    pub service_account: ServiceAccount,
    /// What templates may do in this cluster when built-in daemons run them. A workspace namespace may also be a name alone.
    #[serde(default)]
    #[schemars(schema_with = "schema::names_or_fields")]
    pub rbac: Rbac,
    /// Applied on top of the pod template that the operator makes; the server's container is `coder`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "schema::open_object")]
    pub template: Map<String, Value>,
}

/// Where the database is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.urlSecretRef) != has(self.storage)").message("give exactly one of urlSecretRef and storage"))]
pub struct Database {
    /// URL of a Postgres database; the default key is `url`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url_secret_ref: Option<SecretEntry>,
    /// An embedded database on a persistent volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<Storage>,
}

/// A persistent volume for the embedded database. It is kept when the resource is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Its size.
    #[serde(default = "size")]
    #[schemars(length(min = 1, max = 64))]
    pub size: String,
    /// Its storage class; by default that of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
}

/// The Service in front of the servers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Service {
    /// Its type.
    #[serde(default, rename = "type")]
    pub kind: ServiceType,
    /// Its port for HTTP.
    #[serde(default = "http_port")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Its annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

impl Default for Service {
    fn default() -> Self {
        Self { kind: ServiceType::default(), port: http_port(), annotations: BTreeMap::new() }
    }
}

/// Types of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, schemars::JsonSchema)]
pub enum ServiceType {
    #[default]
    ClusterIP,
    NodePort,
    LoadBalancer,
}

/// Certificates of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// Secrets of the type `kubernetes.io/tls`. With any, the URL of the server is an https one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub secret_names: Vec<String>,
}

/// The token with which pools are managed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorAccess {
    /// Does not publish a token; pools of this control plane then wait.
    #[serde(default)]
    pub disabled: bool,
    /// Name of the Secret with the token, in its entry `token`; by default `NAME-operator-token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub generated_token_secret_name: Option<String>,
}

/// What the operator observed and did.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct CoderControlPlaneStatus {
    /// Generation of the specification that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Pending` or `Ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Servers that are ready.
    #[serde(default)]
    pub ready_replicas: i32,
    /// URL of the server inside the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether the token exists.
    #[serde(default)]
    pub operator_access_ready: bool,
    /// The entry with the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_token_secret_ref: Option<SecretReference>,
    /// When the licence was read last. Only the official operator writes this field and the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::instant")]
    pub entitlements_last_checked: Option<String>,
    /// `entitled`, `grace_period`, `not_entitled` or `unknown`. Pools use it for two minutes, and after that ask the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_provisioner_daemons_entitlement: Option<String>,
    /// The state of each part, and `Ready` as the summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// Other namespaces that have objects of this resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workspace_namespaces: Vec<String>,
}

fn image() -> String {
    "ghcr.io/coder/coder:latest".to_owned()
}

const fn one() -> i32 {
    1
}

const fn http_port() -> i32 {
    80
}

fn size() -> String {
    "10Gi".to_owned()
}
