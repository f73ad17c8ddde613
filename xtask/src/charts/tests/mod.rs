//! The charts, rendered by Helm. What the official charts render of the same values is in kubernetes-charts 1 to kubernetes-charts 3.

mod operator;
mod provisioner;
mod render;
mod repository;
mod schema;
mod server;

use serde_json::{Value, json};

/// What an RBAC rule allows: everything with one kind of object.
fn all_verbs(group: &str, resource: &str) -> Value {
    json!({
        "apiGroups": [group],
        "resources": [resource],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
    })
}

/// A variable that comes from a Secret.
fn from_secret(name: &str, key: &str) -> Value {
    json!({ "secretKeyRef": { "name": name, "key": key } })
}
