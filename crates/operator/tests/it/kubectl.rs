//! What `kubectl explain`, `kubectl get` and completion ask the API server for.

use coder_testkit::kubernetes::{Cluster, apply, cluster};
use coder_testkit::wait::poll_until;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};

/// Fields with Kubernetes' own types, whose parts its own reference describes.
const OF_KUBERNETES: [&str; 4] = ["conditions", "extraEnv", "extraRules", "resources"];

async fn get(cluster: &Cluster, path: &str, accept: &str) -> Value {
    let request = http::Request::get(path).header("accept", accept).body(Vec::new()).unwrap();
    cluster.admin().await.request(request).await.unwrap()
}

/// The fields without a description below a schema.
fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.{name}");
        if field["description"].as_str().is_none_or(str::is_empty) {
            found.push(path.clone());
        }
        if !OF_KUBERNETES.contains(&name.as_str()) {
            undescribed(&path, field, found);
            undescribed(&path, &field["items"], found);
        }
    }
}

#[tokio::test]
async fn every_field_is_explained() {
    let Some(cluster) = cluster() else { return };
    for kind in ["CoderProvisioner", "CoderControlPlane"] {
        let name = format!("com.coder.v1alpha1.{kind}");
        // Published a moment after the definitions are served.
        let schema = poll_until("the schema of the kind", async || {
            let path = "/openapi/v3/apis/coder.com/v1alpha1";
            let mut document = get(cluster, path, "application/json").await;
            Some(document["components"]["schemas"][&name].take()).filter(Value::is_object)
        })
        .await;
        let fields = |part: &str| schema["properties"][part]["properties"].as_object().unwrap().len();
        assert!(fields("spec") >= 10 && fields("status") >= 5, "{kind}");
        let mut found = Vec::new();
        for part in ["spec", "status"] {
            undescribed(part, &schema["properties"][part], &mut found);
        }
        assert_eq!(found, Vec::<String>::new(), "{kind}");
    }
}

/// The columns of a resource before its age by name with their values; those that only `--output=wide` shows end with an asterisk.
async fn columns(cluster: &Cluster, namespace: &str, resource: &str) -> Vec<(String, Value)> {
    let path = format!("/apis/coder.com/v1alpha1/namespaces/{namespace}/{resource}");
    let table = get(cluster, &path, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    let values = table["rows"][0]["cells"].as_array().unwrap();
    let definitions = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(definitions.last().unwrap()["name"], "Age");
    let name = |definition: &Value| {
        let mark = if definition["priority"] == 0 { "" } else { "*" };
        format!("{}{mark}", definition["name"].as_str().unwrap())
    };
    let columns = definitions.iter().map(name).zip(values.iter().cloned());
    columns.filter(|(name, _)| name != "Age").collect()
}

async fn create(cluster: &Cluster, namespace: &str, kind: &str, spec: Value, status: Value) {
    let admin = cluster.admin().await;
    let metadata = json!({"name": "linux", "namespace": namespace});
    let object =
        json!({"apiVersion": "coder.com/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec});
    apply(&admin, object).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("coder.com", "v1alpha1", kind));
    let api: Api<DynamicObject> = Api::namespaced_with(admin, namespace, &resource);
    let status = Patch::Merge(json!({"status": status}));
    api.patch_status("linux", &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn lists_show_what_the_operator_observed() {
    let Some(cluster) = cluster() else { return };
    let namespace = cluster.namespace().await;
    let pool = json!({
        "phase": "Ready", "desiredReplicas": 7, "readyReplicas": 3, "busy": 2, "waitingJobs": 5,
        "organizationName": "research", "provisionerKeyName": "linux-key",
    });
    let spec = json!({"controlPlaneRef": {"name": "coder"}});
    create(cluster, &namespace, "CoderProvisioner", spec, pool).await;
    let shown = columns(cluster, &namespace, "coderprovisioners").await;
    let expected = [
        ("Name", json!("linux")),
        ("Phase", json!("Ready")),
        ("Desired", json!(7)),
        ("Replicas", json!(3)),
        ("Busy", json!(2)),
        ("Waiting", json!(5)),
        ("Organization*", json!("research")),
        ("Key*", json!("linux-key")),
    ];
    assert_eq!(shown, expected.map(|(name, value)| (name.to_owned(), value)));

    let server =
        json!({"phase": "Pending", "readyReplicas": 1, "url": "http://linux.test.svc.cluster.local:80"});
    let spec = json!({"database": {"storage": {"size": "1Gi"}}});
    create(cluster, &namespace, "CoderControlPlane", spec, server).await;
    let shown = columns(cluster, &namespace, "codercontrolplanes").await;
    let expected = [
        ("Name", json!("linux")),
        ("Phase", json!("Pending")),
        ("Ready", json!(1)),
        ("URL", json!("http://linux.test.svc.cluster.local:80")),
    ];
    assert_eq!(shown, expected.map(|(name, value)| (name.to_owned(), value)));
}

#[tokio::test]
async fn resources_have_short_names_and_a_category() {
    let Some(cluster) = cluster() else { return };
    let list = get(cluster, "/apis/coder.com/v1alpha1", "application/json").await;
    let resources = list["resources"].as_array().unwrap();
    for (name, short) in [("coderprovisioners", "cprov"), ("codercontrolplanes", "ccp")] {
        let resource = resources.iter().find(|resource| resource["name"] == name).unwrap();
        assert_eq!(resource["shortNames"], json!([short]));
        assert_eq!(resource["categories"], json!(["coder"]));
    }
}
