//! The objects of a pool, field by field where users and the official operator rely on them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use super::*;
use crate::crd::provisioner::CoderProvisionerSpec;

fn spec(extra: Value) -> CoderProvisionerSpec {
    let mut whole = json!({"coder": {"url": "https://coder.example.com"}});
    for (key, value) in extra.as_object().unwrap() {
        whole[key] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn render<T>(spec: &CoderProvisionerSpec, with: impl FnOnce(&Pool<'_>) -> T) -> T {
    let names = Names::new("builds", "linux");
    let owner =
        OwnerReference { uid: "5f0c".to_owned(), name: "linux".to_owned(), ..OwnerReference::default() };
    let proxy = BTreeMap::from([("HTTPS_PROXY".to_owned(), "http://proxy:3128".to_owned())]);
    with(&Pool {
        names: &names,
        spec,
        owner: &owner,
        default_image: "example/coder:1",
        url: "https://coder.example.com",
        ca_bundle: spec.coder.as_ref().and_then(|server| server.ca_bundle.as_ref()),
        proxy: &proxy,
        key: KeyEntry { secret: "linux-provisioner-key", entry: "key-1", id: "id-1" },
    })
}

fn container(spec: &CoderProvisionerSpec) -> Value {
    render(spec, pod::template)["spec"]["containers"][0].clone()
}

fn variable<'a>(container: &'a Value, name: &str) -> Vec<&'a Value> {
    container["env"].as_array().unwrap().iter().filter(|variable| variable["name"] == json!(name)).collect()
}

#[test]
fn the_daemon_runs_as_with_the_official_operator() {
    let spec = spec(json!({"extraArgs": ["--verbose"]}));
    let container = container(&spec);
    assert_eq!(container["name"], json!("provisioner"));
    assert_eq!(container["image"], json!("example/coder:1"));
    assert_eq!(container["command"], json!(["coder"]));
    assert_eq!(container["args"], json!(["provisioner", "start", "--verbose"]));
    assert_eq!(
        variable(&container, "CODER_PROVISIONER_DAEMON_KEY")[0]["valueFrom"],
        json!({"secretKeyRef": {"name": "linux-provisioner-key", "key": "key-1"}})
    );
    assert_eq!(variable(&container, "HTTPS_PROXY")[0]["value"], json!("http://proxy:3128"));
}

#[test]
fn pods_have_no_privileges() {
    let template = render(&spec(json!({})), pod::template);
    let pod = &template["spec"]["securityContext"];
    assert_eq!(
        (&pod["runAsNonRoot"], &pod["seccompProfile"]["type"]),
        (&json!(true), &json!("RuntimeDefault"))
    );
    let container = &template["spec"]["containers"][0]["securityContext"];
    assert_eq!(
        container,
        &json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    let mounts: Vec<_> = template["spec"]["containers"][0]["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].clone())
        .collect();
    assert_eq!(mounts, ["/var/cache/coder", "/home/coder", "/tmp"], "what must be written is a volume");
}

#[test]
fn a_variable_of_the_specification_replaces_ours() {
    let spec = spec(
        json!({"extraEnv": [{"name": "CODER_URL", "value": "http://other"}, {"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
    );
    let container = container(&spec);
    assert_eq!(variable(&container, "CODER_URL"), [&json!({"name": "CODER_URL", "value": "http://other"})]);
    assert_eq!(variable(&container, "A"), [&json!({"name": "A", "value": "2"})], "a list must not have two");
}

#[test]
fn sources_of_variables_are_passed_on_as_they_are() {
    let file = json!({"name": "B", "valueFrom": {"fileKeyRef": {"volumeName": "home", "path": "variables", "key": "B"}}});
    let container = container(&spec(json!({"extraEnv": [file]})));
    assert_eq!(variable(&container, "B"), [&file], "clusters before 1.34 do not know this one");
}

#[test]
fn certificates_are_mounted_beside_those_of_the_system() {
    let spec = spec(
        json!({"coder": {"url": "https://coder.example.com", "caBundle": {"configMapRef": {"name": "ca"}}}}),
    );
    let template = render(&spec, pod::template);
    let container = &template["spec"]["containers"][0];
    assert_eq!(variable(container, "SSL_CERT_DIR")[0]["value"], json!("/etc/ssl/certs:/etc/coder/ca"));
    let volume = template["spec"]["volumes"].as_array().unwrap().last().unwrap();
    assert_eq!(
        volume,
        &json!({"name": "ca", "configMap": {"name": "ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}})
    );
}

#[test]
fn an_overlay_cannot_take_a_pod_out_of_its_pool() {
    let spec = spec(json!({"template": {
        "metadata": {"labels": {"app.kubernetes.io/instance": "other", "team": "a"}, "annotations": {"coder.com/provisioner-key-id": "x"}},
        "spec": {"nodeSelector": {"pool": "builds"}, "containers": [{"name": "provisioner", "envFrom": [{"secretRef": {"name": "cloud"}}]}]},
    }}));
    let template = render(&spec, pod::template);
    assert_eq!(template["metadata"]["labels"]["app.kubernetes.io/instance"], json!("linux"));
    assert_eq!(template["metadata"]["labels"]["team"], json!("a"));
    assert_eq!(template["metadata"]["annotations"]["coder.com/provisioner-key-id"], json!("id-1"));
    assert_eq!(template["spec"]["nodeSelector"], json!({"pool": "builds"}));
    assert_eq!(template["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(template["spec"]["containers"][0]["command"], json!(["coder"]));
}

#[test]
fn another_key_or_setting_rolls_the_pods_and_nothing_else_does() {
    let plain = spec(json!({}));
    let before = render(&plain, workload::template_hash);
    assert_eq!(render(&spec(json!({"replicas": 7, "tags": {"a": "b"}})), workload::template_hash), before);
    assert_ne!(render(&spec(json!({"extraArgs": ["-v"]})), workload::template_hash), before);
    let rotated = render(&plain, |pool| {
        workload::template_hash(&Pool { key: KeyEntry { id: "id-2", ..pool.key }, ..pool.clone() })
    });
    assert_ne!(rotated, before);
}

#[test]
fn replicas_are_left_out_when_somebody_else_decides_them() {
    let plain = spec(json!({}));
    let with = render(&plain, |pool| workload::deployment(pool, Some(0), false));
    assert_eq!(with["spec"]["replicas"], json!(0));
    let without = render(&plain, |pool| workload::deployment(pool, None, true));
    assert_eq!((without["spec"].get("replicas"), &without["spec"]["paused"]), (None, &json!(true)));
}

#[test]
fn ephemeral_daemons_run_once_and_their_names_leave_room_for_suffixes() {
    let spec = spec(json!({"mode": "Ephemeral"}));
    let job = render(&spec, |pool| workload::job(pool, "01234567"));
    assert_eq!(job["metadata"]["name"], json!("provisioner-linux-01234567"));
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod["restartPolicy"], json!("Never"));
    assert_eq!(pod["containers"][0]["args"], json!(["provisioner", "start", "--once"]));
    assert_eq!(
        job["metadata"]["labels"]["coder.com/template-hash"],
        job["spec"]["template"]["metadata"]["labels"]["coder.com/template-hash"]
    );
}

#[test]
fn permissions_follow_the_switches() {
    let rules = |rbac: Value| {
        let spec = spec(json!({"rbac": rbac}));
        let names = Names::new("builds", "linux");
        let pair = rbac::own(&json!({"name": "r", "namespace": "builds"}), &spec.rbac, &names, "account");
        pair.map(|[role, _]| role["rules"].as_array().unwrap().len())
    };
    assert_eq!(rules(json!({})), Some(2));
    assert_eq!(rules(json!({"enableDeployments": false})), Some(1));
    assert_eq!(rules(json!({"workspacePerms": false})), None, "off means no objects");
    let extra = json!({"workspacePerms": false, "extraRules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["get"]}]});
    assert_eq!(rules(extra), Some(1));
}

#[test]
fn egress_is_limited_only_when_asked_for() {
    assert!(render(&spec(json!({})), protection::network_policy).is_none());
    let open = render(&spec(json!({"networkPolicy": {}})), protection::network_policy).unwrap();
    assert_eq!(open["spec"]["policyTypes"], json!(["Ingress"]));
    let rule = json!({"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]});
    let closed = spec(json!({"networkPolicy": {"restrictEgress": true, "egress": [rule]}}));
    let closed = render(&closed, protection::network_policy).unwrap();
    assert_eq!(closed["spec"]["egress"].as_array().unwrap().len(), 2);
    assert_eq!(closed["spec"]["egress"][1], rule);
}

#[test]
fn the_budget_protects_busy_daemons_only() {
    let budget = render(&spec(json!({})), protection::disruption_budget).unwrap();
    assert_eq!(budget["spec"]["selector"]["matchLabels"]["coder.com/busy"], json!("true"));
    assert_eq!(budget["spec"]["maxUnavailable"], json!(0));
    assert!(render(&spec(json!({"disruptionBudget": false})), protection::disruption_budget).is_none());
}

#[test]
fn an_object_contains_what_was_applied_to_it() {
    let desired = json!({"spec": {"replicas": 2, "list": [{"a": 1}], "none": {}}});
    let live = json!({"spec": {"replicas": 2, "list": [{"a": 1, "default": true}], "more": 1}, "status": {}});
    assert!(contains(&live, &desired));
    for broken in [
        json!({"spec": {"replicas": 3, "list": [{"a": 1}]}}),
        json!({"spec": {"replicas": 2, "list": []}}),
        json!({"spec": {"replicas": 2}}),
        json!({}),
    ] {
        assert!(!contains(&broken, &desired), "{broken}");
    }
}
