//! The chart of the operator.

use serde_json::{Value, json};

use super::render::{Chart, Rendered};
use crate::charts::{Release, write};
use crate::run::root;

fn chart() -> Option<Chart> {
    Chart::find("coder-operator")
}

/// The rules of an object of the manifests with which the operator is tested.
fn tested_rules(kind: &str) -> Value {
    let text = std::fs::read_to_string(root().join("deploy/operator/rbac.yaml")).unwrap();
    Rendered::parse(&text).object(kind, "coder-operator")["rules"].clone()
}

#[test]
fn default_values_run_one_operator_with_the_tested_rules() {
    let Some(chart) = chart() else { return };
    chart.lint("default_values");
    let rendered = chart.render("default_values");
    assert_eq!(
        rendered.objects(),
        [
            "ClusterRole/coder-operator-default",
            "ClusterRoleBinding/coder-operator-default",
            "Deployment/coder-operator",
            "Role/coder-operator-lease",
            "RoleBinding/coder-operator-lease",
            "Service/coder-operator",
            "ServiceAccount/coder-operator",
        ]
    );
    let container = rendered.container();
    assert_eq!((&container["command"], &container["args"]), (&json!(["/opt/coder"]), &json!(["operator"])));
    assert_eq!(container["image"], "localhost/coder:latest");
    assert_eq!(rendered.env("CODER_OPERATOR_HTTP_ADDRESS"), "0.0.0.0:8080");
    assert_eq!(rendered.env("CODER_OPERATOR_LEASE_NAME"), "coder-operator");
    let namespace = json!({ "fieldRef": { "fieldPath": "metadata.namespace" } });
    assert_eq!(rendered.env("CODER_OPERATOR_LEASE_NAMESPACE"), namespace);
    assert_eq!(rendered.env("CODER_OPERATOR_NAMESPACE"), Value::Null);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "metrics", "scheme": "HTTP" }));
    }
    for (name, value) in [
        ("runAsNonRoot", json!(true)),
        ("readOnlyRootFilesystem", json!(true)),
        ("capabilities", json!({ "drop": ["ALL"] })),
    ] {
        assert_eq!(container["securityContext"][name], value, "{name}");
    }
    assert_eq!(
        rendered.object("ClusterRole", "coder-operator-default")["rules"],
        tested_rules("ClusterRole")
    );
    assert_eq!(rendered.object("Role", "coder-operator-lease")["rules"], tested_rules("Role"));
    let service = &rendered.object("Service", "coder-operator")["spec"];
    assert_eq!(service["ports"][0]["targetPort"], "metrics");
    assert_eq!(service["selector"], rendered.deployment()["spec"]["selector"]["matchLabels"]);
    for kind in ["ClusterRoleBinding", "RoleBinding"] {
        let binding = rendered.of_kind(kind).next().unwrap();
        let account = json!([{ "kind": "ServiceAccount", "name": "coder-operator", "namespace": "default" }]);
        assert_eq!(binding["subjects"], account);
    }
}

#[test]
fn a_watched_namespace_needs_no_rights_in_the_cluster() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("watch_namespace");
    assert_eq!(rendered.of_kind("ClusterRole").count() + rendered.of_kind("ClusterRoleBinding").count(), 0);
    assert_eq!(rendered.env("CODER_OPERATOR_NAMESPACE"), "pools");
    let role = rendered.object("Role", "coder-operator");
    assert_eq!(role["metadata"]["namespace"], "pools");
    assert_eq!(role["rules"], tested_rules("ClusterRole"));
    let binding = rendered.object("RoleBinding", "coder-operator");
    assert_eq!(
        (&binding["metadata"]["namespace"], &binding["roleRef"]["kind"]),
        (&json!("pools"), &json!("Role"))
    );
    assert_eq!(binding["subjects"][0]["namespace"], "default", "the account is where the operator runs");
}

#[test]
fn further_settings_are_rendered() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("all_values");
    let rules = rendered.object("ClusterRole", "pools-default")["rules"].as_array().unwrap().clone();
    assert_eq!(rules.last().unwrap()["resources"], json!(["ingresses"]));
    assert_eq!(rendered.deployment()["spec"]["replicas"], 2);
    assert_eq!(rendered.env("CODER_OPERATOR_LEASE_NAME"), "pools");
    assert_eq!(rendered.object("PodMonitor", "pools")["spec"]["podMetricsEndpoints"][0]["port"], "metrics");
    assert_eq!(rendered.object("PodDisruptionBudget", "pools")["spec"]["minAvailable"], 1);
    assert!(chart.error("missing_values", "default").contains("coder.image.tag"));
    assert!(chart.notes("watch_namespace").contains("namespace pools"));
}

#[test]
fn the_package_has_the_custom_resources() {
    let directory = tempfile::tempdir().unwrap();
    let release = Release { version: "1.2.3".to_owned(), registry: "localhost".to_owned() };
    write(&root().join("deploy/helm"), &release, directory.path()).unwrap();
    let package = std::fs::File::open(directory.path().join("coder-operator-1.2.3.tgz")).unwrap();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(package));
    let names: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    for resource in ["coderprovisioners", "codercontrolplanes"] {
        let wanted = format!("coder-operator/crds/coder.com_{resource}.yaml");
        assert!(names.iter().any(|name| name == std::path::Path::new(&wanted)), "{names:?}");
    }
    assert!(names.iter().any(|name| name.ends_with("files/rbac.yaml")), "{names:?}");
}
