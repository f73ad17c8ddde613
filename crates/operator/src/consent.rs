//! Whether another namespace lets a resource have permissions in it.
//!
//! The operator may make Roles in all namespaces, and whoever may make a pool may not. So the other namespace has to agree.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};

use crate::crd::rbac::{Rbac, WorkspaceNamespace};
use crate::names::WORKSPACES_FROM;
use crate::rules::conditions::{Finding, RBAC};

/// The namespaces of `rbac` that accept permissions for resources of the namespace `from`, and why the others do not.
///
/// # Errors
/// The API server did not answer.
pub(crate) async fn ask<'a>(
    kube: &Client,
    from: &str,
    rbac: &'a Rbac,
) -> Result<(Vec<&'a WorkspaceNamespace>, Vec<Finding>), kube::Error> {
    let (mut willing, mut refusals) = (Vec::new(), Vec::new());
    for namespace in &rbac.workspace_namespaces {
        match refusal(kube, from, &namespace.name).await? {
            None => willing.push(namespace),
            Some(refusal) => refusals.push(refusal),
        }
    }
    Ok((willing, refusals))
}

async fn refusal(kube: &Client, from: &str, to: &str) -> Result<Option<Finding>, kube::Error> {
    if from == to {
        return Ok(None);
    }
    let namespaces: Api<Namespace> = Api::all(kube.clone());
    let (reason, message) = match namespaces.get_opt(to).await {
        Ok(Some(namespace)) if accepts(&namespace, from) => return Ok(None),
        Ok(Some(_)) => (
            "NotAllowed",
            format!(
                "the namespace {to:?} accepts no permissions for the namespace {from:?}: annotate it with {WORKSPACES_FROM}={from}"
            ),
        ),
        Ok(None) => ("Rejected", format!("there is no namespace {to:?}")),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            ("Forbidden", format!("cannot read the namespace {to:?}: {}", status.message))
        }
        Err(error) => return Err(error),
    };
    Ok(Some(Finding::no(RBAC, reason, message)))
}

fn accepts(namespace: &Namespace, from: &str) -> bool {
    namespace.annotations().get(WORKSPACES_FROM).is_some_and(|list| names(list, from))
}

/// Whether a list, separated by commas, has this namespace.
fn names(list: &str, namespace: &str) -> bool {
    list.split(',').map(str::trim).any(|entry| entry == "*" || entry == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_namespaces_or_all() {
        for (list, expected) in [
            ("builds", true),
            ("other, builds", true),
            ("*", true),
            ("", false),
            ("builds-2", false),
            ("build*", false),
        ] {
            assert_eq!(names(list, "builds"), expected, "{list:?}");
        }
    }
}
