//! The objects of a pool, as they are applied: pure functions from what is desired to JSON.
//!
//! They are JSON and not types because server-side apply owns exactly the fields that are sent.

pub mod overlay;
pub mod pod;
pub mod protection;
pub mod rbac;
pub mod secret;
pub mod workload;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::crd::provisioner::CoderProvisionerSpec;
use crate::crd::reference::CaBundle;
use crate::names::Names;

/// All that the objects of a pool are made from.
#[derive(Clone, Debug)]
pub struct Pool<'a> {
    pub names: &'a Names,
    pub spec: &'a CoderProvisionerSpec,
    pub owner: &'a OwnerReference,
    /// The image if the specification has none.
    pub default_image: &'a str,
    /// URL that the daemons join.
    pub url: &'a str,
    pub ca_bundle: Option<&'a CaBundle>,
    /// Proxies as variables.
    pub proxy: &'a BTreeMap<String, String>,
    pub key: KeyEntry<'a>,
}

/// The key that new pods use.
#[derive(Clone, Copy, Debug)]
pub struct KeyEntry<'a> {
    pub secret: &'a str,
    pub entry: &'a str,
    pub id: &'a str,
}

impl Pool<'_> {
    /// The name of the service account of the pods.
    #[must_use]
    pub fn service_account(&self) -> &str {
        self.spec.service_account.name.as_deref().unwrap_or(&self.names.service_account)
    }

    /// The metadata of an object in the pool's namespace.
    fn metadata(&self, name: &str) -> Value {
        metadata(name, self.names, self.owner)
    }
}

/// The metadata of an object that the resource owns.
#[must_use]
pub fn metadata(name: &str, names: &Names, owner: &OwnerReference) -> Value {
    json!({
        "name": name,
        "namespace": names.namespace,
        "labels": names.labels(),
        "ownerReferences": [owner],
    })
}

/// The hash of an object, which tells whether what is desired changed since it was applied.
#[must_use]
pub fn digest(object: &Value) -> String {
    let text = serde_json::to_vec(object).expect("a JSON value can be written");
    Sha256::digest(&text).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `live` has everything of `desired`. Lists are compared by position.
#[must_use]
pub fn contains(live: &Value, desired: &Value) -> bool {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => desired
            .iter()
            .all(|(key, value)| live.get(key).map_or_else(|| is_empty(value), |live| contains(live, value))),
        (Value::Array(live), Value::Array(desired)) => {
            live.len() == desired.len()
                && live.iter().zip(desired).all(|(live, desired)| contains(live, desired))
        }
        (live, desired) => live == desired,
    }
}

/// The API server drops empty values.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
