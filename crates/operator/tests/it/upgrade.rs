//! From the official operator's definitions to ours, with the objects that they admitted.

use coder_operator::crd::CoderProvisioner;
use coder_testkit::kubernetes::{DEFINITIONS, apply, cluster_without_definitions, documents};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::World;

/// A definition that admits what the official one does: the fields of a pool without rules and without defaults.
fn official(kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let schema = json!({"type": "object", "properties": {"spec": open, "status": open}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.coder.com")},
        "spec": {
            "group": "coder.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    })
}

#[tokio::test]
async fn objects_of_the_official_definitions_load_and_reconcile() {
    let Some(cluster) = cluster_without_definitions() else { return };
    let admin = cluster.admin().await;
    for kind in ["CoderProvisioner", "CoderControlPlane"] {
        apply(&admin, official(kind)).await;
    }
    cluster.until_served().await;
    let mut world = World::in_cluster(cluster).await;
    let plane = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderControlPlane", "metadata": {"name": "main", "namespace": world.namespace}, "spec": {"image": "example/coder:1"}});
    apply(&admin, plane).await;
    let status = json!({"status": {"url": world.server.url(), "operatorAccessReady": true, "operatorTokenSecretRef": {"name": "token", "key": "token"}}});
    let planes: Api<coder_operator::crd::CoderControlPlane> =
        Api::namespaced(admin.clone(), &world.namespace);
    planes.patch_status("main", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let of_main = || json!({"controlPlaneRef": {"name": "main"}});
    let with = |extra: Value| {
        let mut spec = of_main();
        spec.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        spec
    };
    world.apply_pool("plain", with(json!({"tags": {"os": "linux"}}))).await;
    let bootstrap = json!({"credentialsSecretRef": {"name": "token", "key": "token"}});
    world.apply_pool("first-release", with(json!({"bootstrap": bootstrap, "replicas": 2}))).await;
    // The official definition admits these, and they never worked.
    world.apply_pool("negative", with(json!({"replicas": -3}))).await;
    world.apply_pool("long-key", with(json!({"key": {"name": "k".repeat(79)}}))).await;
    world.apply_pool("of-a-user", with(json!({"tags": {"scope": "user"}}))).await;
    world.apply_pool("nowhere", json!({"controlPlaneRef": {"name": ""}})).await;

    for file in DEFINITIONS {
        for definition in documents(file) {
            apply(&admin, definition).await;
        }
    }
    let pools: Api<CoderProvisioner> = Api::namespaced(admin.clone(), &world.namespace);
    world
        .eventually("the definitions are in use", async || {
            let plain = pools.get("plain").await.unwrap();
            plain.spec.replicas == 1 && pools.get_scale("plain").await.is_ok()
        })
        .await;
    assert_eq!(pools.list(&ListParams::default()).await.unwrap().items.len(), 6);
    world.start_operator().await;
    world.until_connected("plain", 1).await;
    world.until_connected("first-release", 2).await;
    world.until_condition("nowhere", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    for name in ["negative", "of-a-user"] {
        world
            .until(name, "a cause", |status| {
                let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
                ready.is_some_and(|ready| ready.status == "False" && !ready.message.is_empty())
            })
            .await;
    }
    // A key's name is cut now.
    world.until_connected("long-key", 1).await;
    for name in ["plain", "first-release", "negative", "long-key", "of-a-user", "nowhere"] {
        world.delete_pool(name).await;
        world.until_gone(name).await;
    }
    assert_eq!(world.keys().await, []);
    world.stop().await;
}
