//! What the service account of a pool or of a control plane may do with workspaces.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::schema;

/// Permissions of the service account for templates that make workspaces in this cluster.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rbac {
    /// Whether templates may manage pods and persistent volume claims. Without it no Role and no RoleBinding is made.
    #[serde(default = "yes")]
    pub workspace_perms: bool,
    /// Whether templates may also manage deployments.
    #[serde(default = "yes")]
    pub enable_deployments: bool,
    /// Further rules of the Role. The operator must have these permissions itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::rules")]
    pub extra_rules: Vec<PolicyRule>,
    /// Further namespaces that get a Role and a RoleBinding. Each must accept it by the annotation
    /// `coder.com/workspaces-from`, with the namespace of this resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "names_or_fields")]
    #[schemars(length(max = 64))]
    pub workspace_namespaces: Vec<WorkspaceNamespace>,
}

impl Default for Rbac {
    fn default() -> Self {
        Self {
            workspace_perms: true,
            enable_deployments: true,
            extra_rules: Vec::new(),
            workspace_namespaces: Vec::new(),
        }
    }
}

/// Permissions in another namespace; fields that are not given are those of the resource.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceNamespace {
    /// Name of the namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Whether templates may manage pods and persistent volume claims there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_perms: Option<bool>,
    /// Whether templates may also manage deployments there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable_deployments: Option<bool>,
    /// Further rules of the Role there, instead of those of the resource.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::rules")]
    pub extra_rules: Vec<PolicyRule>,
}

/// The official operator has only names here.
fn names_or_fields<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<WorkspaceNamespace>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Entry {
        Name(String),
        Fields(WorkspaceNamespace),
    }
    let entries: Vec<Entry> = Vec::deserialize(deserializer)?;
    let namespace = |entry| match entry {
        Entry::Name(name) => WorkspaceNamespace { name, ..WorkspaceNamespace::default() },
        Entry::Fields(fields) => fields,
    };
    Ok(entries.into_iter().map(namespace).collect())
}

const fn yes() -> bool {
    true
}
