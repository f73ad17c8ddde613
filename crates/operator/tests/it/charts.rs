//! What the charts render, given to the API server: the golden files of `xtask/testdata/charts`, and the values files of the
//! documentation.

use std::path::{Path, PathBuf};

use coder_testkit::kubernetes::{apply, cluster, rendered};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

/// Groups whose definitions are not in this cluster.
const ABSENT: [&str; 2] = ["monitoring.coreos.com", "gateway.networking.k8s.io"];
const CLUSTER_WIDE: [&str; 2] = ["ClusterRole", "ClusterRoleBinding"];

fn golden_files() -> Vec<PathBuf> {
    let charts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/testdata/charts");
    let mut files = Vec::new();
    for chart in std::fs::read_dir(charts).unwrap() {
        for file in std::fs::read_dir(chart.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.to_str().unwrap().ends_with(".golden.yaml") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The objects of a text, moved into a namespace.
fn objects(text: &str, namespace: &str) -> Vec<Value> {
    let documents = text.split("\n---").map(|text| text.trim_start_matches("---"));
    let objects = documents.filter_map(|text| serde_saphyr::from_str::<Option<Value>>(text).unwrap());
    objects
        .filter(|object| object.is_object())
        .map(|mut object| {
            if !CLUSTER_WIDE.contains(&object["kind"].as_str().unwrap()) {
                object["metadata"]["namespace"] = json!(namespace);
            }
            object
        })
        .collect()
}

fn group(object: &Value) -> &str {
    object["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group)
}

/// Whether the API server would take an object. Unknown fields are errors, and nothing is kept.
pub(crate) async fn dry_run(admin: &Client, object: &Value) -> kube::Result<()> {
    let version = object["apiVersion"].as_str().unwrap();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        None => Api::all_with(admin.clone(), &resource),
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, &resource),
    };
    let parameters = PatchParams::apply("dry-run").validation_strict().dry_run();
    api.patch(object["metadata"]["name"].as_str().unwrap(), &parameters, &Patch::Apply(object))
        .await
        .map(drop)
}

#[tokio::test]
async fn the_api_server_accepts_everything_that_the_charts_render() {
    let Some(cluster) = cluster() else { return };
    let (admin, namespace) = (cluster.admin().await, cluster.namespace().await);
    let files = golden_files();
    assert!(files.len() > 60, "{files:?}");
    let mut accepted = 0;
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        for object in objects(&text, &namespace) {
            if ABSENT.contains(&group(&object)) {
                continue;
            }
            if let Err(error) = dry_run(&admin, &object).await {
                panic!("{}: {error}: {object}", file.display());
            }
            accepted += 1;
        }
    }
    assert!(accepted > 250, "{accepted}");
}

#[tokio::test]
async fn the_documented_values_make_pods() {
    let Some(helm) = coder_requirements::program(coder_requirements::Requirement::Helm) else { return };
    let Some(cluster) = cluster() else { return };
    let admin = cluster.admin().await;
    for (chart, values) in [
        ("coder", "values.yaml"),
        ("coder-provisioner", "provisioner-values.yaml"),
        ("coder-provisioner", "provisioner-psk-values.yaml"),
    ] {
        let namespace = cluster.namespace().await;
        let values =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/kubernetes/helm").join(values);
        let values = values.to_str().unwrap();
        let arguments = ["--set", "coder.image.tag=latest", "--values", values];
        let objects = rendered(&helm, chart, &namespace, &arguments);
        let mut replicas = 0;
        for object in objects.iter().filter(|object| !ABSENT.contains(&group(object))) {
            if object["kind"] == "Deployment" {
                replicas = object["spec"]["replicas"].as_u64().unwrap();
            }
            apply(&admin, object.clone()).await;
        }
        assert!(replicas > 0, "{values}");
        let pods: Api<Pod> = Api::namespaced(admin.clone(), &namespace);
        coder_testkit::wait::poll_until("the pods of the chart", async || {
            let found = pods.list(&ListParams::default()).await.unwrap().items.len();
            (u64::try_from(found).unwrap() == replicas).then_some(())
        })
        .await;
    }
}
