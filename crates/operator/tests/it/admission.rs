//! What the API server itself accepts and refuses.

use std::path::Path;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

use coder_testkit::kubernetes::{Cluster, apply, cluster, documents};

use crate::charts::dry_run;

async fn create(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
    spec: Value,
) -> Result<DynamicObject, String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", "CoderProvisioner"));
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.admin().await, namespace, &resource);
    let object = json!({"apiVersion": "coder.com/v1alpha1", "kind": "CoderProvisioner", "metadata": {"name": name}, "spec": spec});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await.map_err(|error| error.to_string())
}

fn with(extra: Value) -> Value {
    let mut spec = json!({"controlPlaneRef": {"name": "coder"}});
    for (key, value) in extra.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

#[tokio::test]
async fn manifests_of_the_official_operator_are_accepted() {
    let Some(cluster) = cluster() else { return };
    let namespace = cluster.namespace().await;
    let whole = with(json!({
        "organizationName": "default",
        "bootstrap": {"credentialsSecretRef": {"name": "credentials", "key": "token"}},
        "key": {"name": "my-key", "secretName": "my-secret", "secretKey": "key"},
        "replicas": 0,
        "tags": {"environment": "production", "empty": ""},
        "image": "ghcr.io/coder/coder:v2.30.0",
        "extraArgs": ["--verbose"],
        "extraEnv": [
            {"name": "A", "value": "1"},
            {"name": "CODER_URL", "value": "https://coder.example.com"},
            {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "D", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "D", "optional": true}}},
        ],
        "resources": {"limits": {"cpu": 2, "memory": "4Gi"}, "requests": {"cpu": "500m"}},
        "imagePullSecrets": [{"name": "registry"}],
        "terminationGracePeriodSeconds": 900,
    }));
    let made = create(cluster, &namespace, "whole", whole.clone()).await.unwrap();
    for (key, value) in whole.as_object().unwrap() {
        assert_eq!(&made.data["spec"][key], value, "{key} is kept");
    }
    let made = create(cluster, &namespace, "least.with.dots", with(json!({}))).await.unwrap();
    let spec = &made.data["spec"];
    assert_eq!(spec["replicas"], json!(1));
    assert_eq!(spec["organizationName"], json!("default"));
    assert_eq!(spec["key"], json!({"secretKey": "key"}));
    assert_eq!(spec["terminationGracePeriodSeconds"], json!(600));
    assert_eq!(spec["rbac"], json!({"workspacePerms": true, "enableDeployments": true}));
}

#[tokio::test]
async fn impossible_specs_are_refused_with_a_reason() {
    let Some(cluster) = cluster() else { return };
    let namespace = cluster.namespace().await;
    let url = || json!({"url": "https://coder.example.com", "tokenSecretRef": {"name": "t"}});
    let cases = [
        (json!({"controlPlaneRef": {"name": ""}}), "controlPlaneRef.name"),
        (json!({}), "exactly one of controlPlaneRef and coder"),
        (with(json!({"coder": url()})), "exactly one of controlPlaneRef and coder"),
        (json!({"coder": {"url": "https://a.example.com"}}), "coder.tokenSecretRef is required"),
        (json!({"coder": {"url": "ftp://a.example.com", "tokenSecretRef": {"name": "t"}}}), "coder.url"),
        (with(json!({"replicas": -3})), "spec.replicas"),
        (with(json!({"key": {"name": "k".repeat(65)}})), "spec.key.name"),
        (with(json!({"key": {"name": "a/b"}})), "spec.key.name"),
        (with(json!({"key": {"name": ""}})), "spec.key.name"),
        (with(json!({"organizationName": "o".repeat(129)})), "spec.organizationName"),
        (with(json!({"terminationGracePeriodSeconds": -1})), "spec.terminationGracePeriodSeconds"),
        (with(json!({"autoscaling": {"maxReplicas": 0}})), "maxReplicas"),
        (with(json!({"autoscaling": {}})), "maxReplicas"),
        (with(json!({"key": {"name": "Built-In"}})), "reserved"),
        (with(json!({"tags": {"scope": "user"}})), "scope=user"),
        (
            with(json!({"extraEnv": [{"name": "CODER_PROVISIONER_DAEMON_KEY", "value": "x"}]})),
            "extraEnv must not",
        ),
        (
            with(json!({"autoscaling": {"minReplicas": 5, "maxReplicas": 2}})),
            "minReplicas must not be greater",
        ),
        (with(json!({"key": {"existingSecretRef": {"name": "s"}, "name": "n"}})), "existingSecretRef"),
        (
            with(json!({"key": {"existingSecretRef": {"name": "s"}}, "tags": {"a": "b"}})),
            "tags cannot be combined",
        ),
        (with(json!({"mode": "Sometimes"})), "spec.mode"),
        (with(json!({"extraEnv": [{"value": "x"}]})), "spec.extraEnv[0].name"),
        (with(json!({"resources": {"limits": {"cpu": "a lot"}}})), "spec.resources.limits"),
    ];
    for (number, (spec, expected)) in cases.into_iter().enumerate() {
        let refused = create(cluster, &namespace, &format!("case-{number}"), spec.clone()).await;
        let error = refused.expect_err(&spec.to_string());
        assert!(error.contains(expected), "{spec}: {error}");
    }
}

#[tokio::test]
async fn the_scale_subresource_has_replicas_and_a_selector() {
    let Some(cluster) = cluster() else { return };
    let namespace = cluster.namespace().await;
    create(cluster, &namespace, "scaled", with(json!({"replicas": 2}))).await.unwrap();
    let pools: Api<coder_operator::crd::CoderProvisioner> =
        Api::namespaced(cluster.admin().await, &namespace);
    let status = Patch::Merge(json!({"status": {"replicas": 2, "selector": "a=b"}}));
    pools.patch_status("scaled", &PatchParams::default(), &status).await.unwrap();
    let scale = pools.get_scale("scaled").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    assert_eq!(scale.status.unwrap().selector.as_deref(), Some("a=b"));
    let patch = Patch::Merge(json!({"spec": {"replicas": 7}}));
    pools.patch_scale("scaled", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(pools.get("scaled").await.unwrap().spec.replicas, 7);
}

#[tokio::test]
async fn the_examples_are_accepted() {
    let Some(cluster) = cluster() else { return };
    let namespace = cluster.namespace().await;
    let admin = cluster.admin().await;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/operator");
    let mut kinds = Vec::new();
    for example in std::fs::read_dir(examples).unwrap() {
        let name = example.unwrap().file_name().into_string().unwrap();
        for mut object in documents(&format!("../examples/kubernetes/operator/{name}")) {
            object["metadata"]["namespace"] = json!(namespace);
            kinds.push(apply(&admin, object).await.types.unwrap().kind);
        }
    }
    kinds.sort();
    assert_eq!(kinds, ["CoderControlPlane", "CoderProvisioner", "CoderProvisioner", "CoderProvisioner"]);
}

/// The whole manifests among the blocks of YAML in a page.
fn manifests(page: &str) -> Vec<Value> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operators").join(page);
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let objects = blocks.map(|block| serde_saphyr::from_str::<Value>(block).unwrap());
    objects.filter(|object| object["kind"].is_string()).collect()
}

#[tokio::test]
async fn the_manifests_of_the_operator_and_of_its_documentation_are_accepted() {
    let Some(cluster) = cluster() else { return };
    let (admin, namespace) = (cluster.admin().await, cluster.namespace().await);
    let mut objects = [documents("operator/deployment.yaml"), documents("operator/rbac.yaml")].concat();
    for mut object in manifests("operator.md") {
        // KEDA's definitions are not in this cluster.
        if object["kind"] != "ScaledObject" {
            object["metadata"]["namespace"] = json!(namespace);
            objects.push(object);
        }
    }
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    for kind in
        ["Deployment", "ClusterRole", "CoderProvisioner", "CoderControlPlane", "HorizontalPodAutoscaler"]
    {
        assert!(kinds.contains(&kind), "no {kind}: {kinds:?}");
    }
    for object in &objects {
        dry_run(&admin, object).await.unwrap_or_else(|error| panic!("{error}: {object}"));
    }
}
