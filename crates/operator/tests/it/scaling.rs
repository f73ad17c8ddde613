//! The number of daemons follows the queue, and no job is lost when it shrinks.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::sync::Notify;

use crate::gateway::Decision;
use crate::kubelet::evict;
use crate::world::World;

#[tokio::test]
async fn a_pool_grows_from_zero_and_shrinks_to_zero_without_losing_a_job() {
    let Some(world) = World::start().await else { return };
    let scaling = json!({"maxReplicas": 5, "scaleDown": {"stabilizationSeconds": 1}});
    world.pool("linux", json!({"tags": {"os": "linux"}, "autoscaling": scaling})).await;
    world.until_condition("linux", "DeploymentReady", "True", "ScaledToZero").await;
    // Jobs that nobody can run hold nothing up.
    world.queue(3, &[("os", "plan9")]).await;
    world.queue(8, &[("os", "linux")]).await;
    world.until("linux", "the greatest number", |status| status.desired_replicas == 5).await;
    world.eventually("five jobs run", async || world.jobs.running() == 5).await;
    world.jobs.finish(8);
    world.eventually("all jobs end", async || world.jobs.finished() == 8).await;
    world.until("linux", "no daemons", |status| status.desired_replicas == 0 && status.replicas == 0).await;
    assert_eq!(world.jobs.killed(), 0);
    let states = world.job_states().await;
    assert_eq!(states.iter().filter(|state| *state == "succeeded").count(), 8, "{states:?}");
    assert_eq!(states.iter().filter(|state| *state == "pending").count(), 3, "{states:?}");
    assert!(world.events("linux").await.contains(&"Scaled".to_owned()));
    world.stop().await;
}

/// How soon is measured by `cargo xtask bench operator`.
#[tokio::test]
async fn ten_waiting_jobs_start_ten_daemons() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"autoscaling": {"maxReplicas": 20}})).await;
    world.until_condition("linux", "DeploymentReady", "True", "ScaledToZero").await;
    world.queue(10, &[]).await;
    world.until("linux", "ten daemons", |status| status.desired_replicas == 10).await;
    world.eventually("ten jobs run", async || world.jobs.running() == 10).await;
    world.jobs.finish(10);
    world.eventually("all jobs end", async || world.jobs.finished() == 10).await;
    world.stop().await;
}

#[tokio::test]
async fn idle_daemons_leave_first_and_busy_ones_finish() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"replicas": 4})).await;
    world.until_connected("linux", 4).await;
    world.queue(2, &[]).await;
    world.until("linux", "two are busy", |status| status.busy == 2).await;
    let busy: Vec<String> = world
        .status("linux")
        .await
        .daemons
        .into_iter()
        .filter(|daemon| daemon.state == "Busy")
        .map(|daemon| daemon.pod)
        .collect();
    world.patch_pool("linux", json!({"spec": {"replicas": 1}})).await;
    world.until("linux", "the idle ones left", |status| status.replicas == 2).await;
    let mut left: Vec<String> = world.pods().await.iter().map(kube::ResourceExt::name_any).collect();
    let mut busy = busy;
    left.sort();
    busy.sort();
    assert_eq!(left, busy);
    world.jobs.finish(2);
    world.until("linux", "one is left", |status| status.replicas == 1).await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (2, 0));
    world.stop().await;
}

#[tokio::test]
async fn a_node_drain_waits_for_busy_daemons_only() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"replicas": 2})).await;
    world.until_connected("linux", 2).await;
    world.queue(1, &[]).await;
    world.until("linux", "one is busy", |status| status.busy == 1).await;
    let daemons = world.status("linux").await.daemons;
    let find = |state: &str| daemons.iter().find(|daemon| daemon.state == state).unwrap().pod.clone();
    let (busy, idle) = (find("Busy"), find("Idle"));
    world
        .eventually("the pod is marked", async || {
            let pods = world.pods().await;
            pods.iter().any(|pod| pod.name_any() == busy && pod.labels().get("coder.com/busy").is_some())
        })
        .await;
    world
        .eventually("the budget refuses the busy pod", async || {
            evict(&world.admin, &world.namespace, &busy).await == 429
        })
        .await;
    assert_eq!(evict(&world.admin, &world.namespace, &idle).await, 201);
    world.jobs.finish(1);
    world.until("linux", "none is busy", |status| status.busy == 0).await;
    world
        .eventually("the pod may go now", async || evict(&world.admin, &world.namespace, &busy).await == 201)
        .await;
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

#[tokio::test]
async fn two_pools_share_the_jobs_that_both_can_run() {
    let Some(world) = World::start().await else { return };
    let scaling = |max: i32| json!({"maxReplicas": max, "scaleDown": {"stabilizationSeconds": 1}});
    world.pool("plain", json!({"tags": {"os": "linux"}, "autoscaling": scaling(2)})).await;
    world.pool("gpu", json!({"tags": {"os": "linux", "gpu": "yes"}, "autoscaling": scaling(5)})).await;
    world.until_condition("plain", "DeploymentReady", "True", "ScaledToZero").await;
    world.until_condition("gpu", "DeploymentReady", "True", "ScaledToZero").await;
    world.queue(3, &[("os", "linux")]).await;
    world.until("plain", "its most", |status| status.desired_replicas == 2).await;
    world.until("gpu", "the rest", |status| status.desired_replicas == 1).await;
    world.jobs.finish(3);
    world.eventually("all jobs end", async || world.jobs.finished() == 3).await;
    world.until("plain", "zero", |status| status.replicas == 0).await;
    world.until("gpu", "zero", |status| status.replicas == 0).await;
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

#[tokio::test]
async fn on_idle_waits_until_no_daemon_is_busy() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"updateStrategy": {"type": "OnIdle"}})).await;
    world.until_connected("linux", 1).await;
    world.queue(1, &[]).await;
    world.until("linux", "busy", |status| status.busy == 1).await;
    let pod = world.pods().await[0].name_any();
    world.patch_pool("linux", json!({"spec": {"extraEnv": [{"name": "A", "value": "1"}]}})).await;
    world.until("linux", "the change waits", |status| status.update_waits_since.is_some()).await;
    assert_eq!(world.pods().await[0].name_any(), pod);
    world.jobs.finish(1);
    world
        .eventually("the pod is replaced", async || {
            let pods = world.pods().await;
            pods.len() == 1 && pods[0].name_any() != pod
        })
        .await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (1, 0));
    world.stop().await;
}

#[tokio::test]
async fn ephemeral_daemons_run_one_job_each() {
    let Some(world) = World::start().await else { return };
    let scaling = json!({"maxReplicas": 3, "scaleDown": {"stabilizationSeconds": 1}});
    world.pool("linux", json!({"mode": "Ephemeral", "autoscaling": scaling})).await;
    world.queue(4, &[]).await;
    world.eventually("three jobs run", async || world.jobs.running() == 3).await;
    let first: Vec<String> = world.pods().await.iter().map(kube::ResourceExt::name_any).collect();
    world.jobs.finish(4);
    world.eventually("all jobs end", async || world.jobs.finished() == 4).await;
    world.until("linux", "no daemons", |status| status.replicas == 0 && status.desired_replicas == 0).await;
    assert!(first.len() >= 3 && world.deployment("provisioner-linux").await.is_none());
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

#[tokio::test]
async fn replicas_of_an_autoscaler_of_kubernetes_are_kept() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    // A horizontal autoscaler writes with this name through this subresource.
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    let manager =
        PatchParams { field_manager: Some("kube-controller-manager".to_owned()), ..PatchParams::default() };
    world.deployments().patch_scale("provisioner-linux", &manager, &scale).await.unwrap();
    world.until_connected("linux", 3).await;
    world.patch_pool("linux", json!({"spec": {"extraEnv": [{"name": "A", "value": "1"}]}})).await;
    world
        .eventually("the change is applied", async || {
            let spec = world.deployment("provisioner-linux").await.unwrap().spec.unwrap();
            spec.template.spec.unwrap().containers[0]
                .env
                .iter()
                .flatten()
                .any(|variable| variable.name == "A")
        })
        .await;
    assert_eq!(world.deployment("provisioner-linux").await.unwrap().spec.unwrap().replicas, Some(3));
    world.stop().await;
}

/// The scale subresource of the pool, as `kubectl scale` and horizontal autoscalers write it.
#[tokio::test]
async fn a_pool_of_a_fixed_size_is_scaled_by_its_scale_subresource() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let scale = Patch::Merge(json!({"spec": {"replicas": 3}}));
    world.pools().patch_scale("linux", &PatchParams::default(), &scale).await.unwrap();
    world.until_connected("linux", 3).await;
    let scale = world.pools().get_scale("linux").await.unwrap().status.unwrap();
    assert_eq!(scale.replicas, 3);
    let selector = scale.selector.unwrap();
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), &world.namespace);
    let found = pods.list(&ListParams::default().labels(&selector)).await.unwrap();
    assert_eq!(found.items.len(), 3, "an autoscaler finds the pods by {selector}");
    let scale = Patch::Merge(json!({"spec": {"replicas": 0}}));
    world.pools().patch_scale("linux", &PatchParams::default(), &scale).await.unwrap();
    world.until("linux", "no daemons", |status| status.replicas == 0).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    assert_eq!(world.status("linux").await.phase.as_deref(), Some("ScaledToZero"));
    world.stop().await;
}

#[tokio::test]
async fn a_schedule_keeps_daemons_without_a_job() {
    let Some(world) = World::start().await else { return };
    // Every minute, for two minutes: it holds always.
    let always = json!([{"cron": "* * * * *", "durationSeconds": 120, "minReplicas": 2}]);
    world.pool("linux", json!({"autoscaling": {"maxReplicas": 5, "schedules": always}})).await;
    world.until_connected("linux", 2).await;
    let scaling = json!({"schedules": null, "scaleDown": {"stabilizationSeconds": 0}});
    world.patch_pool("linux", json!({"spec": {"autoscaling": scaling}})).await;
    world.until("linux", "no daemons", |status| status.replicas == 0).await;
    let malformed = json!([{"cron": "every day at 8", "durationSeconds": 120, "minReplicas": 2}]);
    world.patch_pool("linux", json!({"spec": {"autoscaling": {"schedules": malformed}}})).await;
    world.until_condition("linux", "DeploymentReady", "False", "InvalidSchedule").await;
    world.stop().await;
}

#[tokio::test]
async fn daemons_stay_for_the_time_of_stabilization() {
    let Some(world) = World::start().await else { return };
    let scaling = json!({"maxReplicas": 3, "scaleDown": {"stabilizationSeconds": 4}});
    world.pool("linux", json!({"autoscaling": scaling})).await;
    world.queue(2, &[]).await;
    world.eventually("two jobs run", async || world.jobs.running() == 2).await;
    world.jobs.finish(2);
    let since = world
        .until("linux", "daemons that nobody needs", |status| {
            status.autoscaling.as_ref().is_some_and(|scaling| scaling.excess_since.is_some())
        })
        .await;
    assert_eq!(since.desired_replicas, 2);
    let begun = Instant::now();
    let status = world.until("linux", "fewer daemons", |status| status.desired_replicas == 0).await;
    assert!(begun.elapsed() > Duration::from_secs(2), "{:?} {status:?}", begun.elapsed());
    world.until("linux", "no daemons", |status| status.replicas == 0).await;
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

/// Between the choice of the pod that leaves and its drain, its daemon gets a job.
#[tokio::test]
async fn a_daemon_that_wins_a_job_while_it_is_chosen_to_leave_finishes_it() {
    let Some(world) = World::start().await else { return };
    let gateway = world.gateway().await;
    world.pool_behind(&gateway, "linux", json!({"replicas": 2})).await;
    world.until_connected("linux", 2).await;
    let (drains, queued) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    let (drain, may_go) = (Arc::clone(&drains), Arc::clone(&queued));
    gateway.decide(move |call| {
        let is_first = call.method == http::Method::POST
            && call.path.ends_with("/drain")
            && drain.fetch_add(1, Ordering::SeqCst) == 0;
        let may_go = Arc::clone(&may_go);
        Box::pin(async move {
            if is_first {
                may_go.notified().await;
            }
            Decision::Forward
        })
    });
    let pods = world.pod_names().await;
    world.patch_pool("linux", json!({"spec": {"replicas": 1}})).await;
    world.eventually("a pod is chosen", async || drains.load(Ordering::SeqCst) > 0).await;
    world.queue(2, &[]).await;
    // The chosen one has one too.
    world.eventually("both daemons have a job", async || world.jobs.running() == 2).await;
    queued.notify_one();
    world.until("linux", "two are busy", |status| status.busy == 2).await;
    assert_eq!(world.pod_names().await, pods, "nobody leaves with a job");
    world.jobs.finish(2);
    world.until("linux", "one is left", |status| status.replicas == 1).await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (2, 0));
    world.stop().await;
}

/// Nothing can save a build that is longer than the grace period; the pod does not outlive it either.
#[tokio::test]
async fn a_build_longer_than_the_grace_period_is_lost_with_its_pod() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"terminationGracePeriodSeconds": 1})).await;
    world.until_connected("linux", 1).await;
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    let pods: Api<Pod> = Api::namespaced(world.admin.clone(), &world.namespace);
    let pod = world.pod_names().await.remove(0);
    pods.delete(&pod, &DeleteParams::default()).await.unwrap();
    world.eventually("the pod ends", async || pods.get_opt(&pod).await.unwrap().is_none()).await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (0, 1));
    world.until_connected("linux", 1).await;
    world.stop().await;
}
