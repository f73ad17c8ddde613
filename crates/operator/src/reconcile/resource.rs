//! A resource's identity and finalizers, and the error of a pass.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;

use crate::context::Context;
use crate::crd::CoderProvisioner;
use crate::names::FINALIZER;

/// Why a pass could not even begin, or write its result. Everything else is in the status.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}")]
pub(crate) struct Error {
    pub(super) what: &'static str,
    #[source]
    pub(super) source: kube::Error,
}

/// The longest time between two passes, before [`resync`] spreads them.
pub(super) const RESYNC_INTERVAL: Duration = Duration::from_secs(300);

/// The longest time between two passes over the resource with this UID. It differs, so that resources that were made at the same
/// time are not looked at at the same time for ever.
pub(super) fn resync(uid: &str) -> Duration {
    let sum: u64 = uid.bytes().map(u64::from).sum();
    RESYNC_INTERVAL + Duration::from_secs(sum % 60)
}

/// Namespace and name.
pub(super) fn pool_id(pool: &CoderProvisioner) -> crate::queue::PoolId {
    (pool.namespace().unwrap_or_default(), pool.name_any())
}

pub(super) fn api(ctx: &Context, pool: &CoderProvisioner) -> Api<CoderProvisioner> {
    Api::namespaced(ctx.kube.clone(), &pool.namespace().unwrap_or_default())
}

/// The resource as it is now; none if it does not exist any more.
pub(super) async fn read(ctx: &Context, pool: &CoderProvisioner) -> Result<Option<CoderProvisioner>, Error> {
    let found = api(ctx, pool).get_opt(&pool.name_any()).await;
    found.map_err(|source| Error { what: "read the resource", source })
}

pub(super) async fn add_finalizer(ctx: &Context, pool: &CoderProvisioner) -> Result<(), Error> {
    let mut finalizers = pool.finalizers().to_vec();
    finalizers.push(FINALIZER.to_owned());
    write_finalizers(ctx, pool, &finalizers).await
}

/// The version in the patch makes the API server refuse it if somebody else changed the list meanwhile.
pub(super) async fn write_finalizers(
    ctx: &Context,
    pool: &CoderProvisioner,
    finalizers: &[String],
) -> Result<(), Error> {
    let metadata = json!({"finalizers": finalizers, "resourceVersion": pool.resource_version()});
    let patch = Patch::Merge(json!({"metadata": metadata}));
    match api(ctx, pool).patch(&pool.name_any(), &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(Error { what: "write the finalizer", source }),
    }
}
