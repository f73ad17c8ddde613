//! An upgrade from the official operator: its definitions are replaced by ours while its objects are there.

use std::path::Path;

use coder_testkit::kubernetes::{apply, cluster_without_definitions};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::world::World;

/// A definition of the official operator for `plural`, with the given specification and status.
fn definition(kind: &str, plural: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.coder.com")},
        "spec": {
            "group": "coder.com",
            "names": {"kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase()},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": spec,
                    "status": status,
                }}},
            }],
        },
    })
}

fn fields(kind: &str, names: &[&str]) -> serde_json::Map<String, Value> {
    let schema = match kind {
        "int32" | "int64" => json!({"type": "integer", "format": kind}),
        kind => json!({"type": kind}),
    };
    names.iter().map(|name| ((*name).to_owned(), schema.clone())).collect()
}

/// A reference to an entry of a Secret.
fn entry() -> Value {
    json!({"type": "object", "properties": fields("string", &["name", "key"]), "required": ["name"]})
}

/// A plain list, unlike ours, which is a map by `type`.
fn conditions() -> Value {
    let mut properties = fields("string", &["type", "status", "reason", "message"]);
    properties.insert("lastTransitionTime".to_owned(), json!({"type": "string", "format": "date-time"}));
    properties.insert("observedGeneration".to_owned(), json!({"type": "integer", "format": "int64"}));
    json!({"type": "array", "items": {"type": "object", "properties": properties, "required": ["type", "status"]}})
}

/// `CoderProvisioner` as the official operator defines it, with the field that an older release requires.
fn provisioners(has_bootstrap: bool) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = fields("string", &["organizationName", "image"]);
    spec.extend(fields("int32", &["replicas"]));
    spec.extend(fields("int64", &["terminationGracePeriodSeconds"]));
    let reference = json!({
        "type": "object",
        "properties": {"name": {"type": "string", "default": ""}},
        "x-kubernetes-map-type": "atomic",
    });
    let key = json!({"type": "object", "properties": fields("string", &["name", "secretName", "secretKey"])});
    spec.insert("controlPlaneRef".to_owned(), reference);
    spec.insert("key".to_owned(), key);
    spec.insert("tags".to_owned(), json!({"type": "object", "additionalProperties": {"type": "string"}}));
    spec.insert("extraArgs".to_owned(), json!({"type": "array", "items": {"type": "string"}}));
    spec.insert("extraEnv".to_owned(), json!({"type": "array", "items": open}));
    spec.insert("imagePullSecrets".to_owned(), json!({"type": "array", "items": open}));
    spec.insert("resources".to_owned(), open);
    let mut required = vec!["controlPlaneRef"];
    if has_bootstrap {
        let bootstrap = json!({
            "type": "object",
            "properties": {"credentialsSecretRef": entry()},
            "required": ["credentialsSecretRef"],
        });
        spec.insert("bootstrap".to_owned(), bootstrap);
        required.push("bootstrap");
    }
    let names = [
        "phase",
        "organizationID",
        "organizationName",
        "provisionerKeyID",
        "provisionerKeyName",
        "tagsHash",
        "controlPlaneRefName",
        "controlPlaneURL",
    ];
    let mut status = fields("string", &names);
    status.extend(fields("int64", &["observedGeneration"]));
    status.extend(fields("int32", &["readyReplicas"]));
    status.insert("conditions".to_owned(), conditions());
    status.insert("secretRef".to_owned(), entry());
    definition(
        "CoderProvisioner",
        "coderprovisioners",
        json!({"type": "object", "properties": spec, "required": required}),
        json!({"type": "object", "properties": status}),
    )
}

fn control_planes() -> Value {
    let open = || json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition("CoderControlPlane", "codercontrolplanes", open(), open())
}

/// The definitions; those of an official release if a directory with them is given.
fn definitions(has_bootstrap: bool) -> [Value; 2] {
    let Ok(directory) = std::env::var("CODER_TEST_OFFICIAL_DEFINITIONS") else {
        return [provisioners(has_bootstrap), control_planes()];
    };
    let read = |name: &str| {
        let path = Path::new(&directory).join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        serde_saphyr::from_str(text.trim_start_matches("---")).unwrap()
    };
    [read("coder.com_coderprovisioners.yaml"), read("coder.com_codercontrolplanes.yaml")]
}

fn any(client: &Client, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Creates an object as people do, and gives it the finalizer and the status that the official operator writes.
async fn create(world: &World, kind: &str, name: &str, spec: Value, status: Value) {
    let finalizers: &[&str] = match kind {
        "CoderProvisioner" => &["coder.com/provisioner-key-cleanup"],
        _ => &[],
    };
    let object = json!({
        "apiVersion": "coder.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": spec,
    });
    let api = any(&world.admin, &world.namespace, kind);
    let manager = PostParams { field_manager: Some("manager".to_owned()), ..PostParams::default() };
    let mut made = api.create(&manager, &serde_json::from_value(object).unwrap()).await.unwrap();
    made.data["status"] = status;
    api.replace_status(name, &manager, &made).await.unwrap();
}

/// The status of a pool that works, as the official operator leaves it.
fn status_of_pool(world: &World, key_id: &str) -> Value {
    let condition = |kind: &str, reason: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-02-20T10:00:00Z",
        })
    };
    json!({
        "phase": "Ready", "readyReplicas": 1, "observedGeneration": 1,
        "conditions": [
            condition("ControlPlaneReady", "ControlPlaneAvailable"),
            condition("OperatorAccessReady", "OperatorAccessReady"),
            condition("BootstrapSecretReady", "BootstrapSecretAvailable"),
            condition("ProvisionerKeyReady", "ProvisionerKeyReady"),
            condition("ProvisionerKeySecretReady", "SecretReady"),
            condition("DeploymentReady", "MinimumReplicasReady"),
        ],
        "organizationID": world.organization.id.to_string(), "organizationName": "default",
        "provisionerKeyID": key_id, "provisionerKeyName": "head", "tagsHash": "00000000",
        "controlPlaneRefName": "main", "controlPlaneURL": world.server.url(),
        "secretRef": {"name": "head-provisioner-key", "key": "key"},
    })
}

#[tokio::test]
async fn objects_of_the_official_operator_outlive_the_upgrade_of_the_definitions() {
    let Some(cluster) = cluster_without_definitions() else { return };
    let admin = cluster.admin().await;
    for definition in definitions(true) {
        apply(&admin, definition).await;
    }
    cluster.until_served().await;
    let mut world = World::in_cluster(cluster).await;
    let status = json!({"url": world.server.url(), "phase": "Ready", "operatorAccessReady": true, "operatorTokenSecretRef": {"name": "token", "key": "token"}});
    // Workspace namespaces are names alone there.
    let spec = json!({"image": "example/coder:1", "rbac": {"workspaceNamespaces": ["somewhere"]}});
    create(&world, "CoderControlPlane", "main", spec, status).await;
    let plane = || json!({"name": "main"});
    let credentials = || json!({"credentialsSecretRef": {"name": "token", "key": "token"}});
    // As an older release wants it, before the pool was reconciled.
    let older = json!({"controlPlaneRef": plane(), "bootstrap": credentials(), "tags": {"os": "older"}});
    create(&world, "CoderProvisioner", "older", older, json!({})).await;
    // What ours refuses, and the official definitions admit.
    for (name, extra) in [
        (
            "blank",
            json!({"organizationName": "", "image": "", "key": {"name": "", "secretName": "", "secretKey": ""}}),
        ),
        ("unnamed", json!({"controlPlaneRef": {}})),
        ("negative", json!({"replicas": -3})),
        ("reserved", json!({"key": {"name": "psk"}})),
        ("personal", json!({"tags": {"scope": "user"}})),
    ] {
        let mut spec = json!({"controlPlaneRef": plane(), "bootstrap": credentials()});
        for (key, value) in extra.as_object().unwrap() {
            spec[key] = value.clone();
        }
        create(&world, "CoderProvisioner", name, spec, json!({})).await;
    }
    let has_own_definitions = std::env::var_os("CODER_TEST_OFFICIAL_DEFINITIONS").is_none();
    if has_own_definitions {
        // What no release admits and nobody can read.
        let spec =
            json!({"controlPlaneRef": plane(), "bootstrap": credentials(), "resources": {"limits": "many"}});
        create(&world, "CoderProvisioner", "unreadable", spec, json!({})).await;
    }
    // The newer release, with a key, a Secret and a status.
    for definition in definitions(false) {
        apply(&admin, definition).await;
    }
    let tags = [("os".to_owned(), "linux".to_owned())].into();
    let key = world.server.owner.create_provisioner_key(world.organization.id, "head", tags).await.unwrap();
    let id = world.keys().await[0].id.to_string();
    let spec = json!({"controlPlaneRef": plane(), "tags": {"os": "linux"}});
    let status = status_of_pool(&world, &id);
    create(&world, "CoderProvisioner", "head", spec, status).await;
    let uid = any(&admin, &world.namespace, "CoderProvisioner").get("head").await.unwrap().uid().unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": {
        "name": "head-provisioner-key", "namespace": world.namespace,
        "ownerReferences": [{"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "name": "head", "uid": uid, "controller": true, "blockOwnerDeletion": true}],
    }, "stringData": {"key": key.expose()}});
    apply(&admin, secret).await;

    cluster.install_definitions().await;
    cluster.until_served().await;
    world.start_operator().await;

    let status = world.until_connected("head", 1).await;
    assert_eq!(status.provisioner_key_id.as_deref(), Some(id.as_str()), "the key is kept");
    world.until_condition("head", "Ready", "True", "AllPartsReady").await;
    world.until_connected("older", 1).await;
    world.until_connected("blank", 1).await;
    world.until_condition("older", "Ready", "True", "AllPartsReady").await;
    world.until_condition("unnamed", "ControlPlaneReady", "False", "ControlPlaneUnavailable").await;
    // Each key has a hash of its own in its name, so a reserved name is only the beginning of one.
    world.until_connected("reserved", 1).await;
    for (name, kind) in [("negative", "DeploymentReady"), ("personal", "ProvisionerKeyReady")] {
        world
            .until(name, "its problem is named", |status| {
                status
                    .conditions
                    .iter()
                    .any(|condition| condition.type_ == kind && condition.status == "False")
            })
            .await;
    }
    if has_own_definitions {
        world
            .eventually("the unreadable one is named", async || {
                world.events("unreadable").await.contains(&"Unreadable".to_owned())
            })
            .await;
    }
    // They can be corrected, and deleted.
    let correct = Patch::Merge(json!({"spec": {"replicas": 1}}));
    world.pools().patch("negative", &PatchParams::default(), &correct).await.unwrap();
    world.until_connected("negative", 1).await;
    for name in ["head", "older", "blank", "unnamed", "negative", "reserved", "personal"] {
        world.delete_pool(name).await;
        world.until_gone(name).await;
    }
    assert_eq!(world.keys().await, []);
    assert_eq!(world.jobs.killed(), 0);
    world.stop().await;
}
