//! References to other objects, as both custom resources have them.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

/// An object of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct LocalReference {
    /// Name of the object.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// The name of a Secret for pulling images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct PullSecret {
    /// Name of the Secret.
    #[serde(default)]
    pub name: String,
}

/// An entry of a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
pub struct SecretEntry {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key of the entry; each field that refers to an entry has its own default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub key: Option<String>,
}

impl SecretEntry {
    /// The key, or `default` if none or an empty one is given.
    #[must_use]
    pub fn key_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.key.as_deref().filter(|key| !key.is_empty()).unwrap_or(default)
    }
}

/// Certificates in PEM form in a Secret or a ConfigMap of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.secretRef) != has(self.configMapRef)").message("give exactly one of secretRef and configMapRef"))]
pub struct CaBundle {
    /// Entry of a Secret; the default key is `ca.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretEntry>,
    /// Entry of a ConfigMap; the default key is `ca.crt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<SecretEntry>,
}

/// Proxies, as the variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY` describe them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Proxy {
    /// Proxy for https and wss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https: Option<String>,
    /// Proxy for http and ws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Hosts and networks that are reached without a proxy, separated by commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exceptions: Option<String>,
}
