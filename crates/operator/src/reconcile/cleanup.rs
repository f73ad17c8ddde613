//! The deletion of a pool: the daemons finish, then the keys are deleted, then the resource goes. Nothing blocks it for ever.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::controller::Action;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::json;

use super::objects::remove;
use super::pass::Reached;
use super::resource::{Error, pool_id, write_finalizers};
use super::retire::{Deleted, delete_key};
use super::workload::ignore_missing;
use crate::access;
use crate::context::Context;
use crate::crd::CoderProvisioner;
use crate::crd::provisioner::DeletionPolicy;
use crate::crd::provisioner_status::KeyStatus;
use crate::names::{FINALIZER, Names};

/// How much longer than the grace period of the pods is waited for their end.
const EXTRA_WAIT: SignedDuration = SignedDuration::from_secs(30);
/// How long the deletion of keys is attempted.
const KEY_DELETION_TIME: SignedDuration = SignedDuration::from_secs(60);
/// Time between two looks.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

pub(super) async fn run(ctx: &Context, pool: &CoderProvisioner) -> Result<Action, Error> {
    if !pool.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
        ctx.forget(&pool_id(pool));
        return Ok(Action::await_change());
    }
    let names = Names::new(&pool.namespace().unwrap_or_default(), &pool.name_any());
    if let Some(wait) = drain(ctx, pool, &names).await {
        return Ok(Action::requeue(wait));
    }
    if pool.spec.deletion_policy == DeletionPolicy::Delete
        && let Some(wait) = delete_keys(ctx, pool, &names).await
    {
        return Ok(Action::requeue(wait));
    }
    foreign_objects(ctx, pool, &names).await;
    let left: Vec<String> =
        pool.finalizers().iter().filter(|finalizer| *finalizer != FINALIZER).cloned().collect();
    write_finalizers(ctx, pool, &left).await?;
    ctx.forget(&pool_id(pool));
    Ok(Action::await_change())
}

/// Lets all daemons finish. Returns how long to wait, or none when they have ended or their time is over.
async fn drain(ctx: &Context, pool: &CoderProvisioner, names: &Names) -> Option<Duration> {
    let begun = pool.meta().deletion_timestamp.as_ref()?.0;
    let grace = SignedDuration::from_secs(pool.spec.termination_grace_period_seconds) + EXTRA_WAIT;
    if ctx.clock.now().duration_since(begun) >= grace {
        let note = "the pods did not end within their grace period";
        ctx.event(&pool.object_ref(&()), true, "PodsLeft", note).await;
        return None;
    }
    match end_pods(ctx, pool, names).await {
        Ok(0) => None,
        Ok(_) => Some(POLL_INTERVAL),
        // In a namespace that disappears, things may be gone already.
        Err(kube::Error::Api(status)) if matches!(status.code, 403 | 404) => None,
        Err(error) => {
            tracing::warn!(%error, namespace = names.namespace, provisioner = names.resource, "cannot end the pods");
            Some(POLL_INTERVAL)
        }
    }
}

/// Scales to zero, and returns how many pods are left. A pod's end lets its daemon finish its job.
async fn end_pods(ctx: &Context, pool: &CoderProvisioner, names: &Names) -> Result<usize, kube::Error> {
    let uid = pool.uid().unwrap_or_default();
    let deployments: Api<Deployment> = Api::namespaced(ctx.kube.clone(), &names.namespace);
    if let Some(live) = deployments.get_opt(&names.workload).await?
        && live.owner_references().iter().any(|owner| owner.uid == uid)
        && live.spec.as_ref().is_some_and(|spec| spec.replicas != Some(0) || spec.paused == Some(true))
    {
        let patch = Patch::Merge(json!({"spec": {"replicas": 0, "paused": false}}));
        deployments
            .patch(&names.workload, &PatchParams::default(), &patch)
            .await
            .map(drop)
            .or_else(ignore_missing)?;
    }
    let selector = ListParams::default().labels(&names.selector());
    let jobs: Api<Job> = Api::namespaced(ctx.kube.clone(), &names.namespace);
    for job in jobs.list(&selector).await?.items {
        if job.owner_references().iter().any(|owner| owner.uid == uid)
            && job.meta().deletion_timestamp.is_none()
        {
            jobs.delete(&job.name_any(), &DeleteParams::background())
                .await
                .map(drop)
                .or_else(ignore_missing)?;
        }
    }
    let pods: Api<Pod> = Api::namespaced(ctx.kube.clone(), &names.namespace);
    let ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    Ok(pods.list(&selector).await?.items.iter().filter(|pod| !ended(pod)).count())
}

/// Deletes the keys. Returns how long to wait before the next attempt, or none when there is nothing left to try.
async fn delete_keys(ctx: &Context, pool: &CoderProvisioner, names: &Names) -> Option<Duration> {
    let keys = keys_of(pool);
    if keys.is_empty() {
        return None;
    }
    let now = ctx.clock.now();
    let since = ctx.remember(&pool_id(pool), |memory| *memory.cleanup_since.get_or_insert(now));
    let reached = reach(ctx, pool, names).await;
    let mut failed = None;
    for key in keys {
        let problem = match delete_key(ctx, &names.namespace, reached.as_ref(), &key).await {
            Ok(Deleted::Done) => continue,
            Ok(Deleted::Leaked(why)) => why,
            Err(error) => {
                // A refusal does not become a permission by waiting.
                let is_final =
                    error.status().is_some_and(|status| matches!(status.as_u16(), 400 | 401 | 403));
                if !is_final && now.duration_since(since) < KEY_DELETION_TIME {
                    failed = Some(error);
                    continue;
                }
                error.to_string()
            }
        };
        let note = format!("the provisioner key {:?} stays on {}: {problem}", key.name, key.url);
        tracing::warn!(
            namespace = names.namespace,
            provisioner = names.resource,
            key_name = key.name,
            problem,
            "a provisioner key stays on its server"
        );
        ctx.event(&pool.object_ref(&()), true, "KeyLeaked", &note).await;
    }
    let error = failed?;
    tracing::info!(%error, namespace = names.namespace, provisioner = names.resource, "cannot delete the keys yet");
    Some(POLL_INTERVAL)
}

/// The keys in the status, or the one of the official operator.
fn keys_of(pool: &CoderProvisioner) -> Vec<KeyStatus> {
    let Some(status) = &pool.status else { return Vec::new() };
    if !status.keys.is_empty() || pool.spec.key.existing_secret_ref.is_some() {
        return status.keys.clone();
    }
    let (Some(name), Some(organization_id)) = (&status.provisioner_key_name, &status.organization_id) else {
        return Vec::new();
    };
    vec![KeyStatus {
        name: name.clone(),
        id: status.provisioner_key_id.clone(),
        organization_id: organization_id.clone(),
        url: status.control_plane_url.clone().unwrap_or_default(),
        control_plane: status.control_plane_ref_name.clone(),
        ..KeyStatus::default()
    }]
}

/// The way to the server, or the last one that worked: in a namespace that disappears, the token may be gone.
async fn reach(ctx: &Context, pool: &CoderProvisioner, names: &Names) -> Option<Reached> {
    let kept = ctx.remember(&pool_id(pool), |memory| memory.access.clone());
    let found = access::resolve(&ctx.kube, &names.namespace, &pool.spec).await;
    if let Ok(access) = found
        && let Ok(client) = ctx.clients.get(&access)
    {
        return Some(Reached { access, client });
    }
    kept.map(|(access, client)| Reached { access, client })
}

async fn foreign_objects(ctx: &Context, pool: &CoderProvisioner, names: &Names) {
    let uid = pool.uid().unwrap_or_default();
    let name = names.foreign_role();
    for namespace in pool.status.iter().flat_map(|status| &status.workspace_namespaces) {
        let binding = remove::<RoleBinding>(&ctx.kube, namespace, &name, &uid).await;
        let role = remove::<Role>(&ctx.kube, namespace, &name, &uid).await;
        for error in [binding, role].into_iter().filter_map(Result::err) {
            let note = format!("the permissions in namespace {namespace:?} stay: {error}");
            ctx.event(&pool.object_ref(&()), true, "PermissionsLeft", &note).await;
        }
    }
}
