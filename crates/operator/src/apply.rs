//! Server-side apply that does not write what is already there.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::names::{APPLIED, MANAGED_BY, MANAGER, OWNER_UID};
use crate::objects::{contains, digest};

/// The field manager of everything that the operator applies.
pub(crate) const FIELD_MANAGER: &str = "coder-operator";

/// Why an object was not applied.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// There is an object of this name that belongs to somebody else.
    #[error("{kind} {name:?} exists and does not belong to this resource: delete it, or choose another name")]
    Foreign { kind: String, name: String },
    /// The API server refused it or was not reached.
    #[error(transparent)]
    Api(#[from] kube::Error),
}

/// The API of an object.
pub(crate) fn api_of(client: &Client, object: &Value) -> Api<DynamicObject> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    Api::namespaced_with(client.clone(), text("/metadata/namespace"), &resource)
}

/// Applies an object of the resource with this UID, and returns it as it is then.
///
/// # Errors
/// See [`Error`].
pub(crate) async fn apply(client: &Client, uid: &str, mut object: Value) -> Result<DynamicObject, Error> {
    object["metadata"]["annotations"][APPLIED] = json!(digest(&object));
    let api = api_of(client, &object);
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(live) = api.get_opt(&name).await? {
        if !belongs_to(&live, uid) {
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            return Err(Error::Foreign { kind, name });
        }
        let shown = serde_json::to_value(&live).unwrap_or_default();
        if contains(&shown, &object) {
            return Ok(live);
        }
    }
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    tracing::debug!(kind = %object["kind"], name, "apply");
    Ok(api.patch(&name, &parameters, &Patch::Apply(&object)).await?)
}

/// Whether an object may be changed for the resource with this UID: it is owned by it, or was made for one of the same name
/// and has lost its owner, as after a restore from a backup.
fn belongs_to(live: &DynamicObject, uid: &str) -> bool {
    let owners = live.owner_references();
    if owners.iter().any(|owner| owner.uid == uid)
        || live.annotations().get(OWNER_UID).is_some_and(|owner| owner == uid)
    {
        return true;
    }
    let is_controlled = owners.iter().any(|owner: &OwnerReference| owner.controller == Some(true));
    let is_foreign = live.annotations().contains_key(OWNER_UID);
    !is_controlled && !is_foreign && live.labels().get(MANAGED_BY).is_some_and(|manager| manager == MANAGER)
}

/// Whether the API server refused a request for lack of permission; its message names the missing rules.
#[must_use]
pub(crate) fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(kube::Error::Api(status)) if status.code == 403)
}

/// The message of an error without its internal structure.
#[must_use]
pub(crate) fn message(error: &Error) -> String {
    match error {
        Error::Api(kube::Error::Api(status)) => status.message.clone(),
        other => other.to_string(),
    }
}
