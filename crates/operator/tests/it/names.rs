//! Resources with the longest names that Kubernetes allows, and with dots.

use coder_operator::crd::CoderControlPlane;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use crate::world::World;
use coder_testkit::kubernetes::apply;

/// 253 characters, the most that a name may have, with dots.
fn longest() -> String {
    let label = "a".repeat(62);
    format!("{label}.{label}.{label}.{}z", "b".repeat(63))
}

#[tokio::test]
async fn a_pool_may_have_the_longest_name_with_dots() {
    let Some(world) = World::start().await else { return };
    let name = longest();
    assert_eq!(name.len(), 253);
    world.pool(&name, json!({"tags": {"os": "linux"}})).await;
    let status = world.until_connected(&name, 1).await;
    let keys = world.keys().await;
    assert!(keys[0].name.len() <= 64, "{}", keys[0].name);
    let deployments = world.deployments().list(&ListParams::default()).await.unwrap();
    let deployment = deployments.items[0].metadata.name.clone().unwrap();
    assert!(deployment.len() <= 63 && !deployment.contains('.'), "{deployment}");
    let pod = &world.pod_names().await[0];
    assert_eq!(&status.daemons[0].pod, pod, "the daemon has the name of its pod");
    assert!(!pod.contains('.') && pod.len() <= 63, "{pod}");
    assert!(world.events(&name).await.contains(&"RotatingKey".to_owned()), "Events have shorter names");
    world.queue(1, &[("os", "linux")]).await;
    world.eventually("the job runs", async || world.jobs.running() == 1).await;
    world.jobs.finish(1);
    world.delete_pool(&name).await;
    world.until_gone(&name).await;
    assert_eq!(world.keys().await, []);
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}

#[tokio::test]
async fn pools_whose_long_names_begin_alike_do_not_meet() {
    let Some(world) = World::start().await else { return };
    let names = ["one", "two"].map(|end| format!("{}.{end}", "a".repeat(180)));
    for name in &names {
        world.pool(name, json!({})).await;
    }
    for name in &names {
        world.until_connected(name, 1).await;
    }
    assert_eq!(world.pods().await.len(), 2);
    assert_eq!(world.keys().await.len(), 2);
    world.delete_pool(&names[0]).await;
    world.until_gone(&names[0]).await;
    world.until_connected(&names[1], 1).await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn a_control_plane_may_have_the_longest_name_with_dots() {
    let Some(mut world) = World::without_operator().await else { return };
    world.control_planes = true;
    world.start_operator().await;
    let name = longest();
    let spec = json!({"image": "example/coder:1", "database": {"storage": {"size": "1Gi"}}});
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": name, "namespace": world.namespace}, "spec": spec})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    world
        .eventually("the URL is published", async || {
            planes.get(&name).await.unwrap().status.is_some_and(|status| status.url.is_some())
        })
        .await;
    let services: Api<Service> = Api::namespaced(world.admin.clone(), &world.namespace);
    let service =
        services.list(&ListParams::default()).await.unwrap().items[0].metadata.name.clone().unwrap();
    assert!(service.len() <= 63 && !service.contains('.'), "{service}");
    planes.delete(&name, &DeleteParams::default()).await.unwrap();
    world
        .eventually("everything is gone", async || {
            planes.get_opt(&name).await.unwrap().is_none()
                && services.list(&ListParams::default()).await.unwrap().items.is_empty()
        })
        .await;
    world.stop().await;
}
