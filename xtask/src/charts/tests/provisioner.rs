//! The chart of provisioner daemons: what the official chart renders of the same values, and what ours adds.

use serde_json::{Value, json};

use super::render::Chart;
use super::{all_verbs, from_secret};

const OBJECTS: [&str; 4] = [
    "Deployment/coder-provisioner",
    "Role/coder-provisioner-workspace-perms",
    "RoleBinding/coder-provisioner",
    "ServiceAccount/coder-provisioner",
];

fn chart() -> Option<Chart> {
    Chart::find("coder-provisioner")
}

#[test]
fn default_values_render_all_official_objects() {
    let Some(chart) = chart() else { return };
    chart.lint("default_values");
    let rendered = chart.render("default_values");
    assert_eq!(rendered.objects(), OBJECTS);
    let container = rendered.container();
    assert_eq!(container["command"], json!(["/opt/coder"]));
    assert_eq!(container["args"], json!(["provisionerd", "start"]));
    assert_eq!(container["image"], "localhost/coder-provisioner:latest");
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["ports"], Value::Null, "no port without metrics");
    let resources = json!({ "cpu": "2000m", "memory": "4096Mi" });
    assert_eq!(container["resources"], json!({ "limits": resources, "requests": resources }));
    assert_eq!(
        container["securityContext"],
        json!({
            "allowPrivilegeEscalation": false,
            "capabilities": { "drop": ["ALL"] },
            "readOnlyRootFilesystem": true,
            "runAsGroup": 1000,
            "runAsNonRoot": true,
            "runAsUser": 1000,
            "seccompProfile": { "type": "RuntimeDefault" },
        })
    );
    assert_eq!(
        rendered.env_names(),
        ["CODER_PROMETHEUS_ADDRESS", "CODER_CACHE_DIRECTORY", "CODER_PROVISIONER_DAEMON_PSK", "CODER_URL"]
    );
    assert_eq!(rendered.env("CODER_PROMETHEUS_ADDRESS"), "0.0.0.0:2112");
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_PSK"), from_secret("coder-provisioner-psk", "psk"));
    assert_eq!(rendered.env("CODER_URL"), "http://coder.default.svc.cluster.local");
    // With a read-only root these stay writable.
    let mounts = json!([
        { "name": "coder-tmp", "mountPath": "/tmp" },
        { "name": "coder-cache", "mountPath": rendered.env("CODER_CACHE_DIRECTORY") },
    ]);
    assert_eq!(container["volumeMounts"], mounts);
    let pod = rendered.pod();
    assert_eq!(pod["terminationGracePeriodSeconds"], 600);
    assert_eq!(pod["restartPolicy"], "Always");
    assert_eq!(pod["serviceAccountName"], "coder-provisioner");
    let spec = &rendered.deployment()["spec"];
    assert_eq!(spec["replicas"], 1);
    let rolling = json!({ "maxSurge": "25%", "maxUnavailable": "25%" });
    assert_eq!(spec["strategy"], json!({ "type": "RollingUpdate", "rollingUpdate": rolling }));
    // These two are immutable in the cluster.
    let selector = json!({ "app.kubernetes.io/name": "coder-provisioner", "app.kubernetes.io/instance": "release-name" });
    assert_eq!(spec["selector"]["matchLabels"], selector);
    let labels = json!({
        "app.kubernetes.io/instance": "release-name",
        "app.kubernetes.io/managed-by": "Helm",
        "app.kubernetes.io/name": "coder-provisioner",
        "app.kubernetes.io/part-of": "coder-provisioner",
        "app.kubernetes.io/version": "0.0.0-dev",
        "helm.sh/chart": "coder-provisioner-0.0.0-dev",
    });
    assert_eq!(spec["template"]["metadata"]["labels"], labels);
    assert_eq!(rendered.deployment()["metadata"]["labels"], labels);
    assert_eq!(rendered.object("ServiceAccount", "coder-provisioner")["metadata"]["labels"], labels);
    let annotations = &spec["template"]["metadata"]["annotations"];
    assert_eq!(annotations["com.coder/component"], "provisionerd");
    let rules = json!([
        all_verbs("", "pods"),
        all_verbs("", "persistentvolumeclaims"),
        all_verbs("apps", "deployments")
    ]);
    assert_eq!(rendered.object("Role", "coder-provisioner-workspace-perms")["rules"], rules);
    let binding = rendered.object("RoleBinding", "coder-provisioner");
    assert_eq!(binding["roleRef"]["name"], "coder-provisioner-workspace-perms");
    assert_eq!(
        binding["subjects"],
        json!([{ "kind": "ServiceAccount", "name": "coder-provisioner", "namespace": "default" }])
    );
}

#[test]
fn a_chart_from_a_checkout_needs_an_image_tag() {
    let Some(chart) = chart() else { return };
    assert!(chart.error("missing_values", "default").contains("coder.image.tag"));
}

#[test]
fn the_service_account_is_named_or_left_out() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("sa");
    let name = "coder-service-account";
    let annotations = &rendered.object("ServiceAccount", name)["metadata"]["annotations"];
    assert_eq!(
        annotations["eks.amazonaws.com/role-arn"],
        "arn:aws:iam::123456789012:role/coder-service-account"
    );
    assert_eq!(rendered.pod()["serviceAccountName"], name);
    rendered.object("Role", "coder-service-account-workspace-perms");
    assert_eq!(rendered.object("RoleBinding", name)["subjects"][0]["name"], name);

    let rendered = chart.render("sa_disabled");
    assert_eq!(rendered.objects(), ["Deployment/coder-provisioner"]);
    assert_eq!(rendered.pod()["serviceAccountName"], "coder-provisioner");
}

#[test]
fn labels_and_annotations_are_on_their_objects() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("labels_annotations");
    let (own, pod) =
        (&rendered.deployment()["metadata"], &rendered.deployment()["spec"]["template"]["metadata"]);
    for (metadata, value) in [(own, "deployment"), (pod, "pod")] {
        assert_eq!(metadata["labels"]["example.com/label"], value);
        assert_eq!(metadata["annotations"]["example.com/annotation"], value);
        assert_eq!(metadata["labels"]["app.kubernetes.io/name"], "coder-provisioner");
    }
    let account = &rendered.object("ServiceAccount", "coder-provisioner")["metadata"];
    assert_eq!(account["annotations"], json!({}));
}

#[test]
fn command_and_arguments_are_replaced() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("command");
    assert_eq!(rendered.container()["command"], json!(["/opt/colin"]));
    assert_eq!(rendered.container()["args"], json!(["provisionerd", "start"]));
    let rendered = chart.render("command_args");
    assert_eq!(rendered.container()["command"], json!(["/opt/coder"]));
    assert_eq!(rendered.container()["args"], json!(["arg1", "arg2"]));
}

#[test]
fn the_pre_shared_key_comes_with_sorted_tags() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("provisionerd_psk");
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_PSK"), from_secret("coder-provisionerd-psk", "psk"));
    assert_eq!(rendered.env("CODER_PROVISIONERD_TAGS"), "clusterType=k8s,location=auh");
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_KEY"), Value::Null);
    assert!(chart.error("tag_with_comma", "default").contains("comma"));
}

#[test]
fn key_replaces_the_default_pre_shared_key() {
    let Some(chart) = chart() else { return };
    for case in ["provisionerd_key", "provisionerd_key_psk_empty_workaround"] {
        let rendered = chart.render(case);
        let key = from_secret("coder-provisionerd-key", "provisionerd-key");
        assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_KEY"), key, "{case}");
        assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_PSK"), Value::Null, "{case}");
        assert_eq!(rendered.env("CODER_PROVISIONERD_TAGS"), Value::Null, "{case}");
    }
}

#[test]
fn contradictory_credentials_are_refused() {
    let Some(chart) = chart() else { return };
    for (case, words) in [
        ("provisionerd_psk_and_key", "but not both"),
        ("provisionerd_no_psk_or_key", "provisionerDaemon.keySecretName"),
        ("provisionerd_key_tags", "a key has its own tags"),
    ] {
        for namespace in ["default", "coder"] {
            let error = chart.error(case, namespace);
            assert!(error.contains(words), "{case}: {error}");
        }
    }
}

#[test]
fn extra_templates_are_rendered() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("extra_templates");
    let from_text = rendered.object("ConfigMap", "from-text");
    assert_eq!(from_text["data"]["key"], "some value");
    assert_eq!(from_text["metadata"]["labels"]["app.kubernetes.io/instance"], "release-name");
    assert_eq!(rendered.object("ConfigMap", "from-object")["data"]["key"], "value");
}

#[test]
fn the_name_is_replaced_everywhere() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("name_override");
    assert_eq!(
        rendered.objects(),
        [
            "Deployment/other-coder-provisioner",
            "Role/other-coder-provisioner-workspace-perms",
            "RoleBinding/other-coder-provisioner",
            "ServiceAccount/other-coder-provisioner",
        ]
    );
    let selector = &rendered.deployment()["spec"]["selector"]["matchLabels"];
    assert_eq!(selector["app.kubernetes.io/name"], "other-coder-provisioner");
    let rendered = chart.render("name_override_existing_sa");
    assert_eq!(rendered.objects(), ["Deployment/other-coder-provisioner"]);
    assert_eq!(rendered.pod()["serviceAccountName"], "existing-coder-provisioner-serviceaccount");
}

#[test]
fn given_resources_replace_all_defaults() {
    let Some(chart) = chart() else { return };
    let given = |limits: Option<(&str, &str)>, requests: (&str, &str)| {
        let of = |(cpu, memory): (&str, &str)| json!({ "cpu": cpu, "memory": memory });
        match limits {
            Some(limits) => json!({ "limits": of(limits), "requests": of(requests) }),
            None => json!({ "requests": of(requests) }),
        }
    };
    let rendered = chart.render("custom_resources");
    assert_eq!(rendered.container()["resources"], given(Some(("4000m", "8192Mi")), ("1000m", "2048Mi")));
    let rendered = chart.render("partial_resources");
    assert_eq!(rendered.container()["resources"], given(None, ("1500m", "3072Mi")));
}

#[test]
fn values_of_the_documentation_start_ten_daemons() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("documented_psk");
    assert_eq!(rendered.deployment()["spec"]["replicas"], 10);
    assert_eq!(rendered.env("CODER_URL"), "https://coder.example.com");
    assert_eq!(rendered.env_names().iter().filter(|name| **name == "CODER_URL").count(), 1);
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_PSK"), from_secret("coder-provisioner-psk", "psk"));
    assert_eq!(rendered.env("CODER_PROVISIONERD_TAGS"), "kind=k8s,location=auh");
    let notes = chart.notes("documented_psk");
    assert!(
        notes.contains("10 provisioner daemon(s)") && notes.contains("WARNING: the daemons join with"),
        "{notes}"
    );
    assert!(!chart.notes("provisionerd_key").contains("WARNING"));
}

#[test]
fn metrics_open_the_port_and_turn_the_probes_on() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("monitoring");
    let container = rendered.container();
    let port = json!([{ "name": "prometheus-http", "containerPort": 2112, "protocol": "TCP" }]);
    assert_eq!(container["ports"], port);
    for (probe, path) in
        [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")]
    {
        let http = json!({ "path": path, "port": "prometheus-http", "scheme": "HTTP" });
        assert_eq!(container[probe]["httpGet"], http, "{probe}");
    }
    let monitor = rendered.object("PodMonitor", "coder-provisioner");
    assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    assert_eq!(monitor["spec"]["podMetricsEndpoints"][0]["port"], "prometheus-http");
    let selector = &rendered.deployment()["spec"]["selector"]["matchLabels"];
    assert_eq!(&monitor["spec"]["selector"]["matchLabels"], selector);
    let budget = &rendered.object("PodDisruptionBudget", "coder-provisioner")["spec"];
    assert_eq!((&budget["maxUnavailable"], &budget["selector"]["matchLabels"]), (&json!(1), selector));
    let policy = &rendered.object("NetworkPolicy", "coder-provisioner")["spec"];
    assert_eq!(&policy["podSelector"]["matchLabels"], selector);
    assert_eq!(policy["policyTypes"], json!(["Ingress"]), "Terraform reaches everything");
    assert_eq!(policy["ingress"][0]["ports"], json!([{ "port": 2112, "protocol": "TCP" }]));

    let rendered = chart.render("probes_disabled");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(rendered.container()[probe], Value::Null);
    }
    assert_eq!(rendered.container()["ports"], port);
    assert!(chart.error("pod_monitor_without_metrics", "default").contains("CODER_PROMETHEUS_ENABLE"));
    let policy = chart.render("network_policy_closed");
    let policy = &policy.object("NetworkPolicy", "coder-provisioner")["spec"];
    assert_eq!(policy["ingress"], json!([]), "nobody may connect");
    assert_eq!(policy["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(policy["egress"][0]["to"][0]["ipBlock"]["cidr"], "10.0.0.0/8");
}

#[test]
fn each_namespace_of_workspaces_has_its_own_role() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("namespace_rbac");
    let rules = |namespace: &str| {
        let mut roles = rendered.of_kind("Role").filter(|role| role["metadata"]["namespace"] == namespace);
        roles.next().map(|role| role["rules"].clone())
    };
    let (pods, claims) = (all_verbs("", "pods"), all_verbs("", "persistentvolumeclaims"));
    let deployments = all_verbs("apps", "deployments");
    let ingresses =
        json!({ "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": ["get", "list"] });
    let jobs = json!({ "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create"] });
    let all = json!([pods, claims, deployments, ingresses]);
    assert_eq!(rules("default").as_ref(), Some(&all));
    assert_eq!(rules("inherits").as_ref(), Some(&all));
    assert_eq!(rules("none"), None, "off means that there is no object");
    assert_eq!(rules("own-rules"), Some(json!([pods, claims, jobs])));
    for binding in rendered.of_kind("RoleBinding") {
        // In other namespaces the account is the one of the release.
        assert_eq!(binding["subjects"][0]["namespace"], "default");
    }
    assert_eq!(rendered.of_kind("RoleBinding").count(), 3);
    assert!(chart.error("namespace_of_the_release", "default").contains("the namespace of the release"));
    assert!(chart.error("namespace_of_the_release", "coder").contains("the namespace of the release"));
}

#[test]
fn own_directories_replace_those_of_the_chart() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("certs_and_mounts");
    assert_eq!(rendered.env("CODER_CACHE_DIRECTORY"), "/cache");
    assert_eq!(rendered.env("CODER_PROMETHEUS_ADDRESS"), "127.0.0.1:2112");
    let names = rendered.env_names();
    for name in ["CODER_CACHE_DIRECTORY", "CODER_PROMETHEUS_ADDRESS"] {
        assert_eq!(names.iter().filter(|known| **known == name).count(), 1, "{name}");
    }
    let mounts = rendered.container()["volumeMounts"].as_array().unwrap();
    let at_tmp =
        mounts.iter().filter(|mount| mount["mountPath"].as_str().unwrap().trim_end_matches('/') == "/tmp");
    assert_eq!(at_tmp.map(|mount| &mount["name"]).collect::<Vec<_>>(), ["scratch"], "one mount at a path");
    let authority = json!({
        "name": "ca-cert-my-ca-bundle",
        "mountPath": "/etc/ssl/certs/my-ca-bundle.crt",
        "subPath": "ca-bundle.crt",
        "readOnly": true,
    });
    assert!(mounts.contains(&authority), "{mounts:?}");
    let volumes = rendered.pod()["volumes"].as_array().unwrap();
    let secret = json!({ "name": "ca-cert-my-ca-bundle", "secret": { "secretName": "my-ca-bundle" } });
    assert!(volumes.contains(&secret), "{volumes:?}");
    for mount in mounts {
        assert!(volumes.iter().any(|volume| volume["name"] == mount["name"]), "{mount}");
    }
}

#[test]
fn every_other_value_of_the_official_chart_is_rendered() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("all_values");
    let (pod, container) = (rendered.pod(), rendered.container());
    assert_eq!(container["image"], "ghcr.io/coder/coder:v2.30.0");
    assert_eq!(container["imagePullPolicy"], "Always");
    assert_eq!(container["lifecycle"]["preStop"]["exec"]["command"][0], "/bin/sh");
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], Value::Null);
    assert_eq!(container["securityContext"]["runAsUser"], 2000);
    assert_eq!(pod["securityContext"]["fsGroup"], 1000);
    assert_eq!(pod["imagePullSecrets"], json!([{ "name": "pull-secret" }]));
    assert_eq!(pod["initContainers"][0]["name"], "init-container");
    assert_eq!(pod["tolerations"][0]["key"], "dedicated");
    assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux");
    assert_eq!(pod["topologySpreadConstraints"][0]["maxSkew"], 1);
    assert_eq!(pod["priorityClassName"], "high");
    assert_eq!(pod["hostAliases"][0]["ip"], "10.0.0.5");
    assert_eq!(pod["terminationGracePeriodSeconds"], 3600);
    assert!(pod["affinity"]["podAntiAffinity"].is_object());
    assert_eq!(rendered.env("CODER_PROMETHEUS_ADDRESS"), "[::]:2112");
    let rendered = chart.render("tolerations_map");
    assert_eq!(rendered.pod()["tolerations"], Value::Null);
}

#[test]
fn the_examples_render() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render_example("provisioner-values.yaml");
    let key = from_secret("coder-provisioner-auh", "key");
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_KEY"), key);
    assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], 3600);
    let rendered = chart.render_example("provisioner-psk-values.yaml");
    assert_eq!(rendered.env("CODER_PROVISIONERD_TAGS"), "kind=k8s,location=auh");
}
