//! Permissions that the official operator made for a control plane. It knows them by labels and the UID.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ListParams;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;

use crate::names::Names;
use crate::reconcile::delete_if_there;

/// The finalizer that every control plane of the official operator has.
pub(super) const FINALIZER: &str = "coder.com/workspace-rbac-cleanup";
const OWNER_UID: &str = "coder.com/workspace-rbac-owner-uid";
/// Longest value of a label.
const LABEL: usize = 63;

/// Removes them from a namespace.
///
/// # Errors
/// The API server did not answer, or refused.
pub(super) async fn remove(
    kube: &Client,
    names: &Names,
    namespace: &str,
    uid: &str,
) -> Result<(), kube::Error> {
    if names.resource.len() > LABEL {
        // It cannot label them, so there are none.
        return Ok(());
    }
    let selector = format!(
        "coder.com/control-plane={},coder.com/control-plane-namespace={}",
        names.resource, names.namespace
    );
    remove_all::<RoleBinding>(kube, namespace, &selector, uid).await?;
    remove_all::<Role>(kube, namespace, &selector, uid).await
}

async fn remove_all<K>(kube: &Client, namespace: &str, selector: &str, uid: &str) -> Result<(), kube::Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(kube.clone(), namespace);
    for object in api.list(&ListParams::default().labels(selector)).await?.items {
        if object.annotations().get(OWNER_UID).is_some_and(|owner| owner == uid) {
            delete_if_there(&api, &object.name_any()).await?;
        }
    }
    Ok(())
}
