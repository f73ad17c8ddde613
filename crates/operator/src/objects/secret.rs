//! The Secret of the keys.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::metadata;
use crate::names::Names;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

/// The Secret with these entries, whose values are in base64.
#[must_use]
pub fn secret(
    name: &str,
    names: &Names,
    owner: &OwnerReference,
    entries: &BTreeMap<String, String>,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name, names, owner),
        "type": "Opaque",
        "data": entries,
    })
}
