//! What is missing or refuses: the status names it, and the pool recovers by itself.

use coder_api::tokens::CreateTokenRequest;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use coder_operator::crd::CoderControlPlane;

use crate::kubelet::BROKEN_IMAGE;
use crate::world::World;
use coder_testkit::kubernetes::apply;

#[tokio::test]
async fn a_control_plane_that_comes_later_is_noticed() {
    let Some(world) = World::start().await else { return };
    world.apply_pool("linux", json!({"controlPlaneRef": {"name": "main"}})).await;
    world.until_condition("linux", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {"image": "example/coder:1"}})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let set = async |status: serde_json::Value| {
        planes
            .patch_status("main", &PatchParams::default(), &Patch::Merge(json!({"status": status})))
            .await
            .unwrap();
    };
    set(json!({"url": world.server.url()})).await;
    world.until_condition("linux", "OperatorAccessReady", "False", "OperatorAccessNotReady").await;
    set(json!({"operatorAccessReady": true})).await;
    world.until_condition("linux", "OperatorAccessReady", "False", "OperatorTokenSecretRefMissing").await;
    set(json!({"operatorTokenSecretRef": {"name": ""}})).await;
    world.until_condition("linux", "OperatorAccessReady", "False", "OperatorTokenSecretRefInvalid").await;
    set(json!({"operatorTokenSecretRef": {"name": "main-operator-token"}})).await;
    world.until_condition("linux", "OperatorAccessReady", "False", "OperatorTokenSecretUnavailable").await;
    let token = world.server.owner.token().unwrap().expose().to_owned();
    world.secret("main-operator-token", &[("token", &token)]).await;
    let status = world.until_connected("linux", 1).await;
    assert_eq!(status.control_plane_ref_name.as_deref(), Some("main"));
    let pods = world.pods().await;
    let image = pods[0].spec.as_ref().unwrap().containers[0].image.as_deref();
    assert_eq!(image, Some("example/coder:1"), "the image is the control plane's");
    world.stop().await;
}

#[tokio::test]
async fn the_older_bootstrap_secret_works() {
    let Some(world) = World::start().await else { return };
    apply(&world.admin, json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {}})).await;
    let planes: Api<CoderControlPlane> = Api::namespaced(world.admin.clone(), &world.namespace);
    let status = json!({"status": {"url": world.server.url()}});
    planes.patch_status("main", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    world.apply_pool("linux", json!({"controlPlaneRef": {"name": "main"}, "bootstrap": {"credentialsSecretRef": {"name": "token"}}})).await;
    world.until_connected("linux", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn a_token_secret_that_is_missing_empty_or_replaced_is_noticed() {
    let Some(world) = World::start().await else { return };
    let token = world.server.owner.token().unwrap().expose().to_owned();
    world.secrets().delete("token", &DeleteParams::default()).await.unwrap();
    world.pool("linux", json!({})).await;
    let message = async |wanted: &str| {
        world
            .until("linux", wanted, |status| {
                let mut conditions = status.conditions.iter();
                conditions.any(|condition| {
                    condition.reason == "OperatorTokenSecretUnavailable" && condition.message.contains(wanted)
                })
            })
            .await;
    };
    let command =
        format!("create secret generic token --namespace {} --from-literal=token=", world.namespace);
    message(&command).await;
    world.secret("token", &[("tokn", &token)]).await;
    message("it has [\"tokn\"]").await;
    world.secrets().delete("token", &DeleteParams::default()).await.unwrap();
    world.secret("token", &[("token", "")]).await;
    world.secret("token", &[("token", "0123456789-0123456789012345678901")]).await;
    world.until_condition("linux", "OperatorAccessReady", "False", "OperatorTokenInvalid").await;
    world.secret("token", &[("token", &token)]).await;
    world.until_connected("linux", 1).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    world.stop().await;
}

#[tokio::test]
async fn an_organization_that_does_not_exist_is_named() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"organizationName": "nowhere"})).await;
    let status = world.until_condition("linux", "ProvisionerKeyReady", "False", "OrganizationNotFound").await;
    let summary = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert!(summary.message.contains("nowhere"), "{}", summary.message);
    world.delete_pool("linux").await;
    world
        .eventually("it can be deleted", async || world.pools().get_opt("linux").await.unwrap().is_none())
        .await;
    world.stop().await;
}

#[tokio::test]
async fn a_token_without_permission_is_named() {
    let Some(world) = World::start().await else { return };
    let request = CreateTokenRequest {
        token_name: "reader".to_owned(),
        scopes: vec!["coder:templates.build".to_owned()],
        ..CreateTokenRequest::default()
    };
    let token = world.server.owner.create_token(&request).await.unwrap();
    world.secret("token", &[("token", token.expose())]).await;
    world.pool("linux", json!({})).await;
    let status = world
        .until("linux", "a refusal", |status| {
            status.conditions.iter().any(|condition| condition.reason == "Forbidden")
        })
        .await;
    assert_eq!(status.keys.len(), 1, "{:?}", status.keys);
    assert_eq!(world.keys().await, []);
    world.stop().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_leaves_the_pods_alone() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"replicas": 2})).await;
    world.until_connected("linux", 2).await;
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let mut pods: Vec<_> = world.pods().await.iter().map(kube::ResourceExt::name_any).collect();
    world.patch_pool("linux", json!({"spec": {"coder": {"url": format!("http://127.0.0.1:{port}")}}})).await;
    world.until_condition("linux", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    let mut left: Vec<_> = world.pods().await.iter().map(kube::ResourceExt::name_any).collect();
    pods.sort();
    left.sort();
    assert_eq!(pods, left);
    world.patch_pool("linux", json!({"spec": {"coder": {"url": world.server.url()}}})).await;
    world.until_condition("linux", "Ready", "True", "AllPartsReady").await;
    assert_eq!(world.keys().await.len(), 1);
    world.stop().await;
}

#[tokio::test]
async fn an_image_that_cannot_be_pulled_is_named() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"image": BROKEN_IMAGE})).await;
    let status = world
        .until("linux", "the cause", |status| {
            let condition = status.conditions.iter().find(|condition| condition.type_ == "DeploymentReady");
            condition.is_some_and(|condition| {
                condition.status == "False" && condition.message.contains("ImagePullBackOff")
            })
        })
        .await;
    let summary = status.conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert!(summary.message.contains(BROKEN_IMAGE), "{}", summary.message);
    world.patch_pool("linux", json!({"spec": {"image": "example/coder:1"}})).await;
    world.until_connected("linux", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn tags_that_no_server_takes_are_named() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({"tags": {"os": "lin\0ux"}})).await;
    world.until_condition("linux", "ProvisionerKeyReady", "False", "InvalidTags").await;
    assert_eq!(world.keys().await, []);
    world.patch_pool("linux", json!({"spec": {"tags": {"os": "linux"}}})).await;
    world.until_connected("linux", 1).await;
    world.stop().await;
}

#[tokio::test]
async fn a_paused_pool_is_left_as_it_is_and_can_be_deleted() {
    let Some(world) = World::start().await else { return };
    world.pool("linux", json!({})).await;
    world.until_connected("linux", 1).await;
    world.patch_pool("linux", json!({"spec": {"paused": true, "replicas": 3}})).await;
    world.until("linux", "the pause", |status| status.phase.as_deref() == Some("Paused")).await;
    world.deployments().delete("provisioner-linux", &DeleteParams::default()).await.unwrap();
    world.eventually("no pod is left", async || world.pods().await.is_empty()).await;
    assert!(world.deployment("provisioner-linux").await.is_none(), "nothing is repaired");
    world.patch_pool("linux", json!({"spec": {"paused": false}})).await;
    world.until_connected("linux", 3).await;
    world.patch_pool("linux", json!({"spec": {"paused": true}})).await;
    world.until("linux", "the pause", |status| status.phase.as_deref() == Some("Paused")).await;
    world.delete_pool("linux").await;
    world.until_gone("linux").await;
    assert_eq!(world.keys().await, []);
    world.stop().await;
}
