//! The pod template of a pool.

use serde_json::{Map, Value, json};

use super::{Pool, overlay};
use crate::crd::provisioner::Mode;
use crate::crd::reference::CaBundle;
use crate::names::KEY_ID;

/// The daemon's container.
pub const CONTAINER: &str = "provisioner";
/// The port of metrics, probes and status.
pub const PORT: u16 = 2112;
/// Where the caches of Terraform are.
const CACHE: &str = "/var/cache/coder";
/// Where further certificate authorities are.
const CA: &str = "/etc/coder/ca";

/// The template. With an equal template no pod is replaced.
#[must_use]
pub fn template(pool: &Pool<'_>) -> Value {
    let mut pod = json!({
        "metadata": {
            "labels": pool.names.labels(),
            "annotations": {KEY_ID: pool.key.id},
        },
        "spec": {
            "serviceAccountName": pool.service_account(),
            "terminationGracePeriodSeconds": pool.spec.termination_grace_period_seconds,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container(pool)],
            "volumes": volumes(pool),
        },
    });
    if pool.spec.mode == Mode::Ephemeral {
        pod["spec"]["restartPolicy"] = json!("Never");
    }
    if !pool.spec.image_pull_secrets.is_empty() {
        pod["spec"]["imagePullSecrets"] = json!(pool.spec.image_pull_secrets);
    }
    if let Value::Object(pod) = &mut pod {
        overlay::apply(pod, &pool.spec.template);
        keep(pod, pool);
    }
    pod
}

/// Labels of the selector and the key's annotation cannot be overlaid: without them the pods would not belong to the pool.
fn keep(pod: &mut Map<String, Value>, pool: &Pool<'_>) {
    let own = json!({"metadata": {"labels": pool.names.labels(), "annotations": {KEY_ID: pool.key.id}}});
    if let Value::Object(own) = own {
        overlay::apply(pod, &own);
    }
}

fn container(pool: &Pool<'_>) -> Value {
    let mut args = vec!["provisioner".to_owned(), "start".to_owned()];
    if pool.spec.mode == Mode::Ephemeral {
        args.push("--once".to_owned());
    }
    args.extend(pool.spec.extra_args.iter().cloned());
    let probe = |path: &str, period: u32, failures: u32| {
        json!({
            "httpGet": {"path": path, "port": "metrics"},
            "periodSeconds": period,
            "failureThreshold": failures,
            "timeoutSeconds": 5,
        })
    };
    let mut container = json!({
        "name": CONTAINER,
        "image": pool.spec.image.as_deref().filter(|image| !image.is_empty()).unwrap_or(pool.default_image),
        "command": ["coder"],
        "args": args,
        "env": environment(pool),
        "ports": [{"name": "metrics", "containerPort": PORT, "protocol": "TCP"}],
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        // A first start may install Terraform.
        "startupProbe": probe("/healthz", 2, 150),
        "livenessProbe": probe("/healthz", 20, 6),
        "readinessProbe": probe("/readyz", 5, 2),
        "volumeMounts": mounts(pool),
    });
    if let Some(policy) = pool.spec.image_pull_policy {
        container["imagePullPolicy"] = json!(policy);
    }
    if let Some(resources) = &pool.spec.resources {
        container["resources"] = json!(resources);
    }
    container
}

/// The variables in order. Those of the specification replace ours of the same name, since a list must not have two.
fn environment(pool: &Pool<'_>) -> Vec<Value> {
    let mut variables = vec![
        json!({"name": "CODER_URL", "value": pool.url}),
        json!({
            "name": "CODER_PROVISIONER_DAEMON_KEY",
            "valueFrom": {"secretKeyRef": {"name": pool.key.secret, "key": pool.key.entry}},
        }),
        // The host name ends at the first dot and would be the same for several pods.
        json!({"name": "CODER_PROVISIONER_DAEMON_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        json!({"name": "CODER_CACHE_DIRECTORY", "value": CACHE}),
        json!({"name": "CODER_PROMETHEUS_ENABLE", "value": "true"}),
        json!({"name": "CODER_PROMETHEUS_ADDRESS", "value": format!("0.0.0.0:{PORT}")}),
        json!({"name": "HOME", "value": "/home/coder"}),
    ];
    if pool.ca_bundle.is_some() {
        // Go and this program read every file of these directories.
        variables.push(json!({"name": "SSL_CERT_DIR", "value": format!("/etc/ssl/certs:{CA}")}));
    }
    variables.extend(pool.proxy.iter().map(|(name, value)| json!({"name": name, "value": value})));
    for variable in &pool.spec.extra_env {
        variables.retain(|known| known["name"] != json!(variable.name));
        variables.push(json!(variable));
    }
    variables
}

fn mounts(pool: &Pool<'_>) -> Vec<Value> {
    let mut mounts = vec![
        json!({"name": "cache", "mountPath": CACHE}),
        json!({"name": "home", "mountPath": "/home/coder"}),
        json!({"name": "tmp", "mountPath": "/tmp"}),
    ];
    if pool.ca_bundle.is_some() {
        mounts.push(json!({"name": "ca", "mountPath": CA, "readOnly": true}));
    }
    mounts
}

fn volumes(pool: &Pool<'_>) -> Vec<Value> {
    let mut volumes: Vec<Value> =
        ["cache", "home", "tmp"].iter().map(|name| json!({"name": name, "emptyDir": {}})).collect();
    if let Some(volume) = pool.ca_bundle.and_then(ca_volume) {
        volumes.push(volume);
    }
    volumes
}

fn ca_volume(bundle: &CaBundle) -> Option<Value> {
    let items = |key: &str| json!([{"key": key, "path": "ca.crt"}]);
    if let Some(secret) = &bundle.secret_ref {
        return Some(
            json!({"name": "ca", "secret": {"secretName": secret.name, "items": items(secret.key_or("ca.crt"))}}),
        );
    }
    let map = bundle.config_map_ref.as_ref()?;
    Some(json!({"name": "ca", "configMap": {"name": map.name, "items": items(map.key_or("ca.crt"))}}))
}
