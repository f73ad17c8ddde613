//! The number of daemons follows the queue, and no job is lost when it shrinks.

use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::json;

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

#[tokio::test]
async fn waiting_jobs_are_noticed_within_two_seconds() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"autoscaling": {"maxReplicas": 20}})).await;
    world.until_condition("linux", "DeploymentReady", "True", "ScaledToZero").await;
    world
        .until("linux", "the queue was read", |status| {
            status
                .conditions
                .iter()
                .any(|condition| condition.type_ == "DaemonsConnected" && condition.status == "True")
        })
        .await;
    let begun = Instant::now();
    world.queue(10, &[]).await;
    world.until("linux", "ten daemons", |status| status.desired_replicas == 10).await;
    // Twice the goal, since the machine runs other tests at the same time.
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    world.jobs.finish(10);
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
    world.until("plain", "zero", |status| status.replicas == 0).await;
    world.until("gpu", "zero", |status| status.replicas == 0).await;
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (3, 0));
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
