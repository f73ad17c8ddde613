//! Servers in the cluster.

use std::collections::BTreeSet;

use coder_operator::crd::CoderControlPlane;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use crate::kubelet::BROKEN_IMAGE;
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

/// Role and RoleBinding as the official operator makes them for the control plane `main`.
async fn official_permissions(world: &World, namespace: &str, uid: &str) {
    let metadata = json!({
        "name": "main-0123abcd", "namespace": namespace,
        "labels": {"coder.com/control-plane": "main", "coder.com/control-plane-namespace": world.namespace},
        "annotations": {"coder.com/workspace-rbac-owner-uid": uid},
    });
    let (version, name) = ("rbac.authorization.k8s.io/v1", "main-0123abcd");
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "create"]}]);
    apply(&world.admin, json!({"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": rules}))
        .await;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name});
    let subject = json!({"kind": "ServiceAccount", "name": "main", "namespace": world.namespace});
    apply(&world.admin, json!({"apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]})).await;
}

/// The control plane `main` as the official operator leaves it, with permissions in its namespace and in these.
async fn official(world: &World, namespaces: [&String; 2]) {
    let finalizers = ["coder.com/workspace-rbac-cleanup"];
    let metadata = json!({"name": "main", "namespace": world.namespace, "finalizers": finalizers});
    let spec = json!({"image": "example/coder:1", "rbac": {"workspaceNamespaces": namespaces}});
    let made = apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": metadata, "spec": spec})).await;
    for namespace in namespaces.into_iter().chain([&world.namespace]) {
        official_permissions(world, namespace, &made.uid().unwrap()).await;
    }
}

/// The names of the Roles and RoleBindings of a namespace.
async fn permissions(admin: &Client, namespace: &str) -> Vec<String> {
    let roles: Api<Role> = Api::namespaced(admin.clone(), namespace);
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), namespace);
    let mut names: BTreeSet<String> =
        roles.list(&Default::default()).await.unwrap().items.iter().map(|role| role.name_any()).collect();
    let bindings = bindings.list(&Default::default()).await.unwrap().items;
    names.extend(bindings.iter().map(|binding| binding.name_any()));
    names.into_iter().collect()
}

#[tokio::test]
async fn permissions_of_the_official_operator_stay_until_there_are_ours() {
    let Some(mut world) = World::without_operator().await else { return };
    world.control_planes = true;
    let (agreeing, kept) = (world.cluster.namespace().await, world.cluster.namespace().await);
    world.accept_workspaces(&agreeing, &world.namespace).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let is_ours = |names: &[String]| names.len() == 1 && names[0].starts_with("control-plane-");
    let admin = world.admin.clone();
    official(&world, [&agreeing, &kept]).await;
    world.start_operator().await;
    world
        .eventually("ours replace them where that is agreed", async || {
            is_ours(&permissions(&admin, &agreeing).await)
                && permissions(&admin, &world.namespace).await == ["main-workspaces"]
        })
        .await;
    world
        .eventually("the condition says so", async || {
            let status = planes.get("main").await.unwrap().status.unwrap_or_default();
            let mut conditions = status.conditions.iter();
            conditions.any(|condition| {
                condition.type_ == "WorkspacePermissionsReady"
                    && condition.status == "True"
                    && condition.message.contains(&format!("in {kept} those that were there"))
            })
        })
        .await;
    assert_eq!(permissions(&admin, &kept).await, ["main-0123abcd"]);
    world.accept_workspaces(&kept, &world.namespace).await;
    let touch = Patch::Merge(json!({"metadata": {"labels": {"look": "1"}}}));
    planes.patch("main", &PatchParams::default(), &touch).await.unwrap();
    world
        .eventually("nothing of the official operator is left", async || {
            let plane = planes.get("main").await.unwrap();
            is_ours(&permissions(&admin, &kept).await)
                && plane.finalizers() == ["coder.com/workspace-permissions-cleanup"]
        })
        .await;
    // One that is deleted before anything else goes with all of its permissions.
    let gone = async || planes.get_opt("main").await.unwrap().is_none();
    planes.delete("main", &DeleteParams::default()).await.unwrap();
    world.eventually("it is gone", &gone).await;
    world.kill_operator().await;
    official(&world, [&agreeing, &kept]).await;
    planes.delete("main", &DeleteParams::default()).await.unwrap();
    world.start_operator().await;
    world.eventually("it is gone", &gone).await;
    for namespace in [&agreeing, &kept] {
        world
            .eventually("its permissions, too", async || permissions(&admin, namespace).await.is_empty())
            .await;
    }
    world.stop().await;
}

#[tokio::test]
async fn an_image_that_does_not_start_is_named() {
    let Some(mut world) = World::without_operator().await else { return };
    world.control_planes = true;
    world.start_operator().await;
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {"image": BROKEN_IMAGE}})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    for kind in ["DeploymentReady", "Ready"] {
        world
            .eventually("the problem of the pod is named", async || {
                let status = planes.get("main").await.unwrap().status.unwrap_or_default();
                let mut conditions = status.conditions.iter();
                conditions.any(|condition| {
                    condition.type_ == kind
                        && condition.status == "False"
                        && condition.message.contains("ImagePullBackOff")
                })
            })
            .await;
    }
    world.stop().await;
}
