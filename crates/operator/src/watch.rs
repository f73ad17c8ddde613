//! Watches of the custom resources.

use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use crate::context::Context;

/// Objects that are listed at once: a page is in memory as a whole.
const PAGE_SIZE: u32 = 50;

/// A kind of object that can be watched.
pub(crate) trait Watched:
    Resource<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + DeserializeOwned
    + std::fmt::Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Watched for K where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static
{
}

/// Settings of every watch.
pub(crate) fn settings() -> watcher::Config {
    watcher::Config::default().page_size(PAGE_SIZE)
}

/// The objects of a kind. One that cannot be read is reported and left out, so that it keeps nothing from the others:
/// definitions of another release may have admitted it.
pub(crate) fn readable<K: Watched>(
    api: Api<DeserializeGuard<K>>,
    ctx: Arc<Context>,
) -> impl Stream<Item = Result<watcher::Event<K>, watcher::Error>> + Send + 'static {
    watcher(api, settings()).default_backoff().filter_map(move |event| {
        let ctx = Arc::clone(&ctx);
        async move {
            use watcher::Event;
            Some(match event {
                Ok(Event::Apply(object)) => Ok(Event::Apply(read(object, &ctx).await?)),
                Ok(Event::InitApply(object)) => Ok(Event::InitApply(read(object, &ctx).await?)),
                Ok(Event::Delete(object)) => Ok(Event::Delete(object.0.ok()?)),
                Ok(Event::Init) => Ok(Event::Init),
                Ok(Event::InitDone) => Ok(Event::InitDone),
                Err(error) => Err(error),
            })
        }
    })
}

async fn read<K>(object: DeserializeGuard<K>, ctx: &Context) -> Option<K>
where
    K: Resource<DynamicType = ()>,
{
    let about = object.object_ref(&());
    match object.0 {
        Ok(object) => Some(object),
        Err(invalid) => {
            tracing::warn!(
                error = invalid.error,
                namespace = about.namespace,
                name = about.name,
                "cannot read a resource: correct it, or install the definitions of this release"
            );
            ctx.event(&about, true, "Unreadable", &invalid.error).await;
            None
        }
    }
}
