//! Servers in the cluster.

use coder_operator::crd::CoderControlPlane;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::Role;
use kube::api::DeleteParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::world::World;
use coder_testkit::kubernetes::apply;

#[tokio::test]
async fn one_manifest_makes_a_server_and_its_volume_outlives_it() {
    let Some(mut world) = World::without_operator().await else { return };
    world.control_planes = true;
    world.start_operator().await;
    let other = world.cluster.namespace().await;
    world.accept_workspaces(&other, &world.namespace).await;
    let spec = json!({"image": "example/coder:1", "database": {"storage": {"size": "1Gi"}}, "rbac": {"workspaceNamespaces": [{"name": other}]}});
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": spec})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let url = format!("http://main.{}.svc.cluster.local:80", world.namespace);
    world
        .eventually("the URL is published", async || {
            let status = planes.get("main").await.unwrap().status.unwrap_or_default();
            status.url.as_deref() == Some(url.as_str())
        })
        .await;
    let services: Api<Service> = Api::namespaced(world.admin.clone(), &world.namespace);
    assert_eq!(services.get("main").await.unwrap().spec.unwrap().ports.unwrap()[0].port, 80);
    let deployment = world.deployment("main").await.unwrap();
    assert_eq!(
        deployment.spec.unwrap().template.spec.unwrap().containers[0].args.as_ref().unwrap(),
        &["server"]
    );
    let roles: Api<Role> = Api::namespaced(world.admin.clone(), &other);
    assert_eq!(roles.list(&Default::default()).await.unwrap().items.len(), 1);
    planes.delete("main", &DeleteParams::default()).await.unwrap();
    world
        .eventually("everything else is gone", async || {
            planes.get_opt("main").await.unwrap().is_none()
                && world.deployment("main").await.is_none()
                && services.get_opt("main").await.unwrap().is_none()
                && roles.list(&Default::default()).await.unwrap().items.is_empty()
        })
        .await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.admin.clone(), &world.namespace);
    assert!(claims.get("main-data").await.unwrap().owner_references().is_empty());
    world.stop().await;
}
