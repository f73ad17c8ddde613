//! One pass over a `CoderProvisioner`: compares what it describes with what there is, and corrects the difference.
//!
//! A pass may end at any point, for example because the operator was killed; the next one continues from what it finds.

mod cleanup;
mod daemons;
mod ephemeral;
mod keys;
mod objects;
mod pass;
mod prune;
mod resource;
mod retire;
mod status;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::controller::Action;
use kube::{Resource as _, ResourceExt as _};

use crate::context::Context;
use crate::crd::CoderProvisioner;
use crate::names::FINALIZER;
pub(crate) use daemons::problem;
pub(crate) use objects::{delete_if_there, remove};
use pass::Pass;
use resource::{Error, RESYNC_INTERVAL, add_finalizer, pool_id, read};

/// Delay until a resource that was not found is read again.
const NOT_FOUND_RETRY_DELAY: Duration = Duration::from_secs(10);

/// One pass.
///
/// # Errors
/// The resource cannot be read, or its status or finalizer cannot be written.
pub(crate) async fn reconcile(pool: Arc<CoderProvisioner>, ctx: Arc<Context>) -> Result<Action, Error> {
    let started = std::time::Instant::now();
    let result = run(&pool, &ctx).await;
    ctx.metrics.pass(started.elapsed(), result.is_ok());
    result
}

async fn run(known: &CoderProvisioner, ctx: &Context) -> Result<Action, Error> {
    // The watch may not have the last status yet, and with it the keys that the last pass made.
    let Some(pool) = &read(ctx, known).await? else {
        ctx.forget(&pool_id(known));
        // It is gone, or its definition is being replaced; the controller drops the next pass if the watch knows it no more.
        return Ok(Action::requeue(NOT_FOUND_RETRY_DELAY));
    };
    if pool.meta().deletion_timestamp.is_some() {
        return cleanup::run(ctx, pool).await;
    }
    if !pool.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        add_finalizer(ctx, pool).await?;
        // The change starts the next pass.
        return Ok(Action::requeue(RESYNC_INTERVAL));
    }
    Pass::new(ctx, pool).run().await
}

/// What to do after an error of [`reconcile`].
#[expect(clippy::needless_pass_by_value, reason = "the controller calls it with values")]
pub(crate) fn on_error(pool: Arc<CoderProvisioner>, error: &Error, ctx: Arc<Context>) -> Action {
    let delay = ctx.remember(&pool_id(&pool), |memory| memory.backoff.next_delay());
    tracing::warn!(
        %error, cause = %error.source, namespace = pool.namespace(), provisioner = pool.name_any(), "the pass failed"
    );
    Action::requeue(delay)
}
