//! Service account, and what templates may do in this cluster.

use serde_json::{Value, json};

use super::Pool;
use crate::crd::rbac::{Rbac, WorkspaceNamespace};
use crate::names::{Names, OWNER_UID};

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The service account; none if an existing one is used.
#[must_use]
pub fn service_account(pool: &Pool<'_>) -> Option<Value> {
    let wanted = &pool.spec.service_account;
    if wanted.disable_create {
        return None;
    }
    let mut metadata = pool.metadata(pool.service_account());
    if !wanted.annotations.is_empty() {
        metadata["annotations"] = json!(wanted.annotations);
    }
    Some(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
}

/// Role and RoleBinding of the resource's own namespace; none if there are no permissions.
#[must_use]
pub fn own(metadata: &Value, rbac: &Rbac, names: &Names, account: &str) -> Option<[Value; 2]> {
    let rules = rules(rbac.workspace_perms, rbac.enable_deployments, &json!(rbac.extra_rules));
    pair(metadata.clone(), rules, names, account)
}

/// Role and RoleBinding of another namespace. Objects there cannot have an owner, so an annotation names it.
#[must_use]
pub fn foreign(
    rbac: &Rbac,
    namespace: &WorkspaceNamespace,
    names: &Names,
    account: &str,
    uid: &str,
) -> Option<[Value; 2]> {
    let metadata = json!({
        "name": names.foreign_role(),
        "namespace": namespace.name,
        "labels": names.labels(),
        "annotations": {OWNER_UID: uid},
    });
    let extra = if namespace.extra_rules.is_empty() { &rbac.extra_rules } else { &namespace.extra_rules };
    let rules = rules(
        namespace.workspace_perms.unwrap_or(rbac.workspace_perms),
        namespace.enable_deployments.unwrap_or(rbac.enable_deployments),
        &json!(extra),
    );
    pair(metadata, rules, names, account)
}

/// The rules; `extra` is a list.
fn rules(workspaces: bool, deployments: bool, extra: &Value) -> Vec<Value> {
    let mut rules = Vec::new();
    if workspaces {
        rules.push(
            json!({"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": VERBS}),
        );
        if deployments {
            rules.push(json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": VERBS}));
        }
    }
    rules.extend(extra.as_array().into_iter().flatten().cloned());
    rules
}

fn pair(metadata: Value, rules: Vec<Value>, names: &Names, account: &str) -> Option<[Value; 2]> {
    if rules.is_empty() {
        return None;
    }
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": metadata["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": names.namespace}],
    });
    Some([role, binding])
}
