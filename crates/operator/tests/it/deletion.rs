//! Deleted pools: daemons finish, keys are deleted, and nothing hangs.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn a_deleted_pool_finishes_its_job_and_deletes_its_key() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    world.queue(1, &[]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.delete_pool("linux").await;
    world.eventually("the pod is asked to end", async || world.pods().await.is_empty()).await;
    assert_eq!(world.keys().await.len(), 1, "the daemon still needs it");
    assert!(world.pools().get_opt("linux").await.unwrap().is_some());
    world.jobs.finish(1);
    world
        .eventually("the pool is gone", async || world.pools().get_opt("linux").await.unwrap().is_none())
        .await;
    assert_eq!(world.keys().await, []);
    assert_eq!((world.jobs.finished(), world.jobs.killed()), (1, 0));
    world
        .eventually("its objects are gone", async || {
            world.deployment("provisioner-linux").await.is_none()
                && world.secrets().get_opt("linux-provisioner-key").await.unwrap().is_none()
        })
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_deleted_namespace_leaves_no_key() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    namespaces.delete(&world.namespace, &DeleteParams::default()).await.unwrap();
    world
        .eventually("the namespace is gone", async || {
            namespaces.get_opt(&world.namespace).await.unwrap().is_none()
        })
        .await;
    assert_eq!(world.keys().await, []);
    world.stop().await;
}

#[tokio::test]
async fn a_retained_key_stays() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"deletionPolicy": "Retain"})).await;
    world.until_connected("linux", 1).await;
    world.delete_pool("linux").await;
    world
        .eventually("the pool is gone", async || world.pools().get_opt("linux").await.unwrap().is_none())
        .await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_pool_without_its_token_can_be_deleted() {
    let Some(mut world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    world.secrets().delete("token", &DeleteParams::default()).await.unwrap();
    world.kill_operator().await;
    world.start_operator().await;
    world.delete_pool("linux").await;
    world
        .eventually("the pool is gone", async || world.pools().get_opt("linux").await.unwrap().is_none())
        .await;
    assert!(world.events("linux").await.contains(&"KeyLeaked".to_owned()), "the key that stays is named");
    world.stop().await;
}
