//! The chart of the server: what the official chart renders of the same values, and what ours adds.

use serde_json::{Value, json};

use super::render::{Chart, Rendered};
use super::{all_verbs, from_secret};

fn chart() -> Option<Chart> {
    Chart::find("coder")
}

fn service(rendered: &Rendered) -> &Value {
    &rendered.object("Service", "coder")["spec"]
}

#[test]
fn default_values_render_all_official_objects() {
    let Some(chart) = chart() else { return };
    chart.lint("default_values");
    let rendered = chart.render("default_values");
    assert_eq!(
        rendered.objects(),
        [
            "Deployment/coder",
            "Role/coder-workspace-perms",
            "RoleBinding/coder",
            "Service/coder",
            "ServiceAccount/coder"
        ]
    );
    let container = rendered.container();
    assert_eq!(container["command"], json!(["/opt/coder"]));
    assert_eq!(container["args"], json!(["server"]));
    assert_eq!(container["ports"], json!([{ "name": "http", "containerPort": 8080, "protocol": "TCP" }]));
    for (name, value) in [
        ("CODER_HTTP_ADDRESS", json!("0.0.0.0:8080")),
        ("CODER_PROMETHEUS_ADDRESS", json!("0.0.0.0:2112")),
        ("CODER_PPROF_ADDRESS", json!("0.0.0.0:6060")),
        ("CODER_ACCESS_URL", json!("http://coder.default.svc.cluster.local")),
        ("KUBE_POD_IP", json!({ "fieldRef": { "fieldPath": "status.podIP" } })),
        ("CODER_DERP_SERVER_RELAY_URL", json!("http://$(KUBE_POD_IP):8080")),
        ("GOMEMLIMIT", json!({ "resourceFieldRef": { "resource": "limits.memory" } })),
        ("CODER_PROVISIONER_DAEMON_PSK", Value::Null),
        ("CODER_TLS_ENABLE", Value::Null),
    ] {
        assert_eq!(rendered.env(name), value, "{name}");
    }
    // A variable can only refer to one before it.
    let names = rendered.env_names();
    let place = |name: &str| names.iter().position(|known| *known == name).unwrap();
    assert!(place("KUBE_POD_IP") < place("CODER_DERP_SERVER_RELAY_URL"));
    let health = json!({ "path": "/healthz", "port": "http", "scheme": "HTTP" });
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(container[probe]["httpGet"], health, "{probe}");
    }
    assert_eq!(container["readinessProbe"]["initialDelaySeconds"], 0);
    let security = &container["securityContext"];
    for (name, value) in [
        ("runAsNonRoot", json!(true)),
        ("runAsUser", json!(1000)),
        ("runAsGroup", json!(1000)),
        ("allowPrivilegeEscalation", json!(false)),
        ("readOnlyRootFilesystem", json!(true)),
        ("seccompProfile", json!({ "type": "RuntimeDefault" })),
        ("capabilities", json!({ "drop": ["ALL"] })),
    ] {
        assert_eq!(security[name], value, "{name}");
    }
    let mounts = container["volumeMounts"].as_array().unwrap();
    for name in ["CODER_DATA_DIR", "CODER_CACHE_DIRECTORY"] {
        assert!(mounts.iter().any(|mount| mount["mountPath"] == rendered.env(name)), "{name} is writable");
    }
    let rule =
        &rendered.pod()["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(rule["podAffinityTerm"]["topologyKey"], "kubernetes.io/hostname");
    // Built-in daemons may have builds to finish.
    assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], 1860);
    let service = service(&rendered);
    assert_eq!(service["type"], "LoadBalancer");
    assert_eq!(service["sessionAffinity"], "None");
    assert_eq!(service["externalTrafficPolicy"], "Cluster");
    assert_eq!(
        service["ports"],
        json!([{ "name": "http", "port": 80, "targetPort": "http", "protocol": "TCP" }])
    );
    assert_eq!(service["selector"], rendered.deployment()["spec"]["selector"]["matchLabels"]);
    let annotations = &rendered.deployment()["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["com.coder/component"], "coderd");
    let rules = json!([
        all_verbs("", "pods"),
        all_verbs("", "persistentvolumeclaims"),
        all_verbs("apps", "deployments")
    ]);
    assert_eq!(rendered.object("Role", "coder-workspace-perms")["rules"], rules);
}

#[test]
fn a_chart_from_a_checkout_needs_an_image_tag() {
    let Some(chart) = chart() else { return };
    assert!(chart.error("missing_values", "coder").contains("coder.image.tag"));
}

#[test]
fn the_service_account_is_named_or_left_out() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("sa");
    assert_eq!(rendered.pod()["serviceAccountName"], "coder-service-account");
    rendered.object("Role", "coder-service-account-workspace-perms");
    // Without an account of its own the release still gives the existing one its rights.
    let rendered = chart.render("sa_disabled");
    assert_eq!(rendered.of_kind("ServiceAccount").count(), 0);
    assert_eq!(rendered.object("RoleBinding", "coder")["subjects"][0]["name"], "coder");
    let rendered = chart.render("sa_extra_rules");
    let rules = rendered.object("Role", "coder-workspace-perms")["rules"].as_array().unwrap();
    assert_eq!((rules.len(), &rules[3]["resources"]), (4, &json!(["services"])));
    let rendered = chart.render("namespace_rbac");
    assert_eq!(rendered.of_kind("Role").count(), 3);
    assert_eq!(rendered.of_kind("RoleBinding").count(), 3);
}

#[test]
fn names_labels_command_and_resources_are_replaced() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("labels_annotations");
    assert_eq!(rendered.deployment()["metadata"]["labels"]["example.com/label"], "deployment");
    let pod = &rendered.deployment()["spec"]["template"]["metadata"];
    assert_eq!(pod["annotations"]["example.com/annotation"], "pod");
    assert_eq!(chart.render("command").container()["command"], json!(["/opt/colin"]));
    assert_eq!(chart.render("command_args").container()["args"], json!(["arg1", "arg2"]));
    assert_eq!(chart.render("custom_resources").container()["resources"]["limits"]["cpu"], "4000m");
    assert_eq!(chart.render("partial_resources").container()["resources"]["limits"], Value::Null);
    chart.render("extra_templates").object("ConfigMap", "from-text");
    let rendered = chart.render("name_override");
    assert_eq!(rendered.deployment()["metadata"]["name"], "other-coder");
    assert_eq!(service(&rendered)["selector"]["app.kubernetes.io/name"], "other-coder");
}

#[test]
fn the_pre_shared_key_reaches_the_server() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("provisionerd_psk");
    assert_eq!(rendered.env("CODER_PROVISIONER_DAEMON_PSK"), from_secret("coder-provisionerd-psk", "psk"));
    assert!(chart.notes("provisionerd_psk").contains("pre-shared key"));
}

#[test]
fn certificates_turn_https_on() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("tls");
    for (name, value) in [
        ("CODER_ACCESS_URL", "https://coder.default.svc.cluster.local"),
        ("CODER_TLS_ENABLE", "true"),
        ("CODER_TLS_ADDRESS", "0.0.0.0:8443"),
        (
            "CODER_TLS_CERT_FILE",
            "/etc/ssl/certs/coder/coder-tls/tls.crt,/etc/ssl/certs/coder/coder-tls-2/tls.crt",
        ),
        (
            "CODER_TLS_KEY_FILE",
            "/etc/ssl/certs/coder/coder-tls/tls.key,/etc/ssl/certs/coder/coder-tls-2/tls.key",
        ),
    ] {
        assert_eq!(rendered.env(name), value, "{name}");
    }
    let mounts = rendered.container()["volumeMounts"].as_array().unwrap();
    let mount =
        json!({ "name": "tls-coder-tls", "mountPath": "/etc/ssl/certs/coder/coder-tls", "readOnly": true });
    assert!(mounts.contains(&mount), "{mounts:?}");
    let volumes = rendered.pod()["volumes"].as_array().unwrap();
    assert!(volumes.contains(&json!({ "name": "tls-coder-tls", "secret": { "secretName": "coder-tls" } })));
    assert_eq!(
        service(&rendered)["ports"][1],
        json!({ "name": "https", "port": 443, "targetPort": "https", "protocol": "TCP" })
    );
    assert_eq!(rendered.container()["ports"][1]["containerPort"], 8443);
}

#[test]
fn a_workspace_proxy_has_its_own_command() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("workspace_proxy");
    assert_eq!(rendered.container()["args"], json!(["wsproxy", "server"]));
    assert_eq!(rendered.env("CODER_PRIMARY_ACCESS_URL"), "https://dev.example.com");
    assert_eq!(rendered.env("CODER_PROXY_SESSION_TOKEN")["secretKeyRef"]["key"], "token");
    assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], 60);
    let annotations = &rendered.deployment()["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["com.coder/component"], "wsproxy");
}

#[test]
fn the_access_url_is_the_service_unless_it_is_given() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("auto_access_url_1");
    assert_eq!(rendered.env("CODER_ACCESS_URL"), "https://dev.example.com");
    assert_eq!(rendered.env_names().iter().filter(|name| **name == "CODER_ACCESS_URL").count(), 1);
    let rendered = chart.render("auto_access_url_2");
    assert_eq!(rendered.env("CODER_ACCESS_URL"), "http://coder.default.svc.cluster.local");
    assert_eq!(rendered.env("SOME_ENV"), "some value");
    let rendered = chart.render("auto_access_url_3");
    assert_eq!(rendered.env("CODER_ACCESS_URL"), Value::Null);
    assert!(chart.notes("auto_access_url_2").contains("only pods of this cluster reach"));
    assert!(!chart.notes("auto_access_url_1").contains("only pods of this cluster reach"));
}

#[test]
fn the_environment_comes_from_other_objects() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("env_from");
    assert_eq!(rendered.env("COOL_ENV")["configMapKeyRef"]["name"], "cool-env");
    let sources =
        json!([{ "configMapRef": { "name": "cool-configmap" } }, { "secretRef": { "name": "cool-secret" } }]);
    assert_eq!(rendered.container()["envFrom"], sources);
}

#[test]
fn addresses_are_replaced() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("prometheus");
    assert_eq!(rendered.container()["ports"][1]["name"], "prometheus-http");
    assert_eq!(rendered.container()["ports"][1]["containerPort"], 2112);
    let rendered = chart.render("prometheus_address_override");
    assert_eq!(rendered.env("CODER_PROMETHEUS_ADDRESS"), "127.0.0.1:2112");
    assert_eq!(rendered.env_names().iter().filter(|name| **name == "CODER_PROMETHEUS_ADDRESS").count(), 1);
    let rendered = chart.render("pprof_address_override");
    assert_eq!(rendered.env_names().iter().filter(|name| **name == "CODER_PPROF_ADDRESS").count(), 1);
    let rendered = chart.render("gomemlimit_override");
    assert_eq!(rendered.env("GOMEMLIMIT"), "1GiB");
    assert_eq!(rendered.env_names().iter().filter(|name| **name == "GOMEMLIMIT").count(), 1);
    let rendered = chart.render("single_stack_ipv6");
    for (name, value) in [
        ("CODER_HTTP_ADDRESS", "[::]:8080"),
        ("CODER_PROMETHEUS_ADDRESS", "[::]:2112"),
        ("CODER_PPROF_ADDRESS", "[::]:6060"),
        ("CODER_DERP_SERVER_RELAY_URL", "http://[$(KUBE_POD_IP)]:8080"),
    ] {
        assert_eq!(rendered.env(name), value, "{name}");
    }
}

#[test]
fn settings_of_the_pod_are_rendered() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("topology");
    assert_eq!(rendered.pod()["topologySpreadConstraints"][0]["topologyKey"], "kubernetes.io/hostname");
    let rendered = chart.render("securitycontext");
    let security = &rendered.container()["securityContext"];
    assert_eq!((&security["runAsUser"], &security["readOnlyRootFilesystem"]), (&json!(2000), &json!(false)));
    let rendered = chart.render("pod_securitycontext");
    assert_eq!(rendered.pod()["securityContext"], json!({ "runAsUser": 2000, "fsGroup": 2000 }));
    assert_eq!(chart.render("priority_class_name").pod()["priorityClassName"], "high");
    let rendered = chart.render("host_aliases");
    assert_eq!(rendered.pod()["hostAliases"][1]["hostnames"], json!(["db.internal"]));
    let rendered = chart.render("deployment_strategy");
    let rolling = json!({ "maxSurge": "50%", "maxUnavailable": 3 });
    let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": rolling });
    assert_eq!(rendered.deployment()["spec"]["strategy"], strategy);
    assert_eq!(chart.render("grace_period").pod()["terminationGracePeriodSeconds"], 0);
}

#[test]
fn probes_are_changed_or_turned_off() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("probes_custom");
    let probe = |delay: u32, period: u32, timeout: u32, success: u32, failure: u32| {
        json!({
            "httpGet": { "path": "/healthz", "port": "http", "scheme": "HTTP" },
            "initialDelaySeconds": delay,
            "periodSeconds": period,
            "timeoutSeconds": timeout,
            "successThreshold": success,
            "failureThreshold": failure,
        })
    };
    assert_eq!(rendered.container()["readinessProbe"], probe(10, 15, 5, 2, 6));
    assert_eq!(rendered.container()["livenessProbe"], probe(30, 20, 10, 1, 3));
    let rendered = chart.render("probe_defaults");
    let only_path = json!({ "httpGet": { "path": "/healthz", "port": "http", "scheme": "HTTP" } });
    assert_eq!(rendered.container()["startupProbe"], only_path);
    let rendered = chart.render("probes_disabled");
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_eq!(rendered.container()[probe], Value::Null);
    }
}

#[test]
fn each_type_of_service_has_its_fields() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("svc_loadbalancer");
    assert_eq!(service(&rendered)["loadBalancerIP"], "1.1.1.1");
    assert_eq!(service(&rendered)["ports"][0]["nodePort"], 30080);
    let rendered = chart.render("svc_loadbalancer_class");
    assert_eq!(service(&rendered)["loadBalancerClass"], "test");
    let rendered = chart.render("svc_nodeport");
    let ports = &service(&rendered)["ports"];
    assert_eq!((&ports[0]["nodePort"], &ports[1]["nodePort"]), (&json!(30080), &json!(30443)));
    assert_eq!(service(&rendered)["externalTrafficPolicy"], Value::Null, "only load balancers have one");
    let rendered = chart.render("svc_additional_ports");
    let ports = service(&rendered)["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 2, "there is no HTTPS without certificates");
    let further = json!({ "name": "coder-custom", "port": 8081, "targetPort": 8081, "protocol": "TCP", "nodePort": 30081 });
    assert_eq!(ports[1], further);
    assert_eq!(chart.render("svc_disabled").of_kind("Service").count(), 0);
}

#[test]
fn an_ingress_has_the_host_and_the_wildcard() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("ingress");
    let spec = &rendered.object("Ingress", "coder")["spec"];
    assert_eq!(spec["ingressClassName"], "nginx");
    let hosts: Vec<_> = spec["rules"].as_array().unwrap().iter().map(|rule| &rule["host"]).collect();
    assert_eq!(
        hosts,
        ["coder.example.com", "*.coder.example.com"],
        "an Ingress has no suffix after the star"
    );
    let backend = &spec["rules"][0]["http"]["paths"][0]["backend"]["service"];
    assert_eq!(backend, &json!({ "name": "coder", "port": { "name": "http" } }));
    let tls = json!([
        { "hosts": ["coder.example.com"], "secretName": "coder-tls" },
        { "hosts": ["*.coder.example.com"], "secretName": "coder-wildcard-tls" },
    ]);
    assert_eq!(spec["tls"], tls);
    assert!(chart.error("ingress_without_host", "coder").contains("coder.ingress.host"));
}

#[test]
fn a_gateway_gets_routes_and_listeners() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("listenerset");
    let route = &rendered.object("HTTPRoute", "coder")["spec"];
    assert_eq!(route["parentRefs"], json!([{ "name": "gateway", "namespace": "gateways" }]));
    assert_eq!(route["hostnames"], json!(["coder.example.com", "*.coder.example.com"]));
    assert_eq!(route["rules"][0]["backendRefs"], json!([{ "name": "coder", "port": 80 }]));
    let listeners = &rendered.object("ListenerSet", "coder")["spec"];
    assert_eq!(listeners["parentRef"]["name"], "gateway");
    assert_eq!(listeners["listeners"], json!([{ "name": "https", "port": 443, "protocol": "HTTPS" }]));
    let rendered = chart.render("listenerset_redirect");
    let redirect = &rendered.object("HTTPRoute", "coder-https-redirect")["spec"];
    assert_eq!(redirect["parentRefs"], json!([{ "name": "gateway", "port": 80 }]));
    assert_eq!(
        redirect["rules"][0]["filters"][0]["requestRedirect"],
        json!({ "scheme": "https", "statusCode": 301 })
    );
    assert!(chart.error("listenerset_without_parent", "coder").contains("coder.listenerset.parentRef"));
    assert!(chart.error("httproute_without_host", "coder").contains("coder.httproute.host"));
}

#[test]
fn the_embedded_database_has_a_volume_and_one_server() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render("persistence");
    let claim = &rendered.object("PersistentVolumeClaim", "coder-data");
    assert_eq!(claim["spec"]["resources"]["requests"]["storage"], "20Gi");
    assert_eq!(claim["spec"]["storageClassName"], "fast");
    assert_eq!(claim["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    let volumes = rendered.pod()["volumes"].as_array().unwrap();
    let data = json!({ "name": "coder-data", "persistentVolumeClaim": { "claimName": "coder-data" } });
    assert!(volumes.contains(&data), "{volumes:?}");
    assert_eq!(rendered.pod()["securityContext"], json!({ "fsGroup": 1000 }));
    assert_eq!(rendered.pod()["terminationGracePeriodSeconds"], 60, "no built-in daemons");
    // Two servers never open one file.
    assert_eq!(rendered.deployment()["spec"]["strategy"], json!({ "type": "Recreate" }));
    assert!(chart.error("persistence_of_two_servers", "coder").contains("coder.replicaCount"));
    assert!(!chart.notes("persistence").contains("are lost"));
    assert!(chart.notes("default_values").contains("are lost"));
}

#[test]
fn the_examples_render() {
    let Some(chart) = chart() else { return };
    let rendered = chart.render_example("values.yaml");
    assert_eq!(rendered.env("CODER_ACCESS_URL"), "https://coder.example.com");
    assert_eq!(rendered.env("CODER_PG_CONNECTION_URL"), from_secret("coder", "url"));
    assert_eq!(rendered.object("PodDisruptionBudget", "coder")["spec"]["minAvailable"], 1);
    rendered.object("Ingress", "coder");
}
