//! The objects of a control plane; pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde_json::{Value, json};

use crate::crd::CoderControlPlaneSpec;
use crate::names::Names;
use crate::objects::{metadata, overlay};

/// The server's container.
const CONTAINER: &str = "coder";
/// Where the embedded database and the caches are.
const DATA: &str = "/var/lib/coder";

/// All that the objects are made from.
pub(crate) struct Plane<'a> {
    pub(crate) names: &'a Names,
    pub(crate) spec: &'a CoderControlPlaneSpec,
    pub(crate) owner: &'a OwnerReference,
}

impl Plane<'_> {
    fn has_tls(&self) -> bool {
        !self.spec.tls.secret_names.is_empty()
    }

    /// The name of the service account of the pods.
    pub(crate) fn service_account(&self) -> &str {
        let given = self.spec.service_account.name.as_deref().filter(|name| !name.is_empty());
        given.unwrap_or(&self.names.service_account)
    }

    /// The URL inside the cluster.
    pub(crate) fn url(&self) -> String {
        let host = format!("{}.{}.svc.cluster.local", self.names.workload, self.names.namespace);
        if self.has_tls() {
            return format!("https://{host}:443");
        }
        format!("http://{host}:{}", self.spec.service.port)
    }
}

/// Service account; none if an existing one is used.
pub(crate) fn service_account(plane: &Plane<'_>) -> Option<Value> {
    let wanted = &plane.spec.service_account;
    if wanted.disable_create {
        return None;
    }
    let mut metadata = metadata(plane.service_account(), plane.names, plane.owner);
    if !wanted.annotations.is_empty() {
        metadata["annotations"] = json!(wanted.annotations);
    }
    Some(json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
}

/// The Service.
pub(crate) fn service(plane: &Plane<'_>) -> Value {
    let mut ports = vec![
        json!({"name": "http", "port": plane.spec.service.port, "targetPort": "http", "protocol": "TCP"}),
    ];
    if plane.has_tls() {
        ports.push(json!({"name": "https", "port": 443, "targetPort": "https", "protocol": "TCP"}));
    }
    let mut metadata = metadata(&plane.names.workload, plane.names, plane.owner);
    if !plane.spec.service.annotations.is_empty() {
        metadata["annotations"] = json!(plane.spec.service.annotations);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": plane.spec.service.kind, "selector": plane.names.labels(), "ports": ports},
    })
}

/// The volume of an embedded database. It has no owner, so that it outlives the resource.
pub(crate) fn volume_claim(plane: &Plane<'_>) -> Option<Value> {
    let storage = plane.spec.database.as_ref()?.storage.as_ref()?;
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage.size}},
    });
    if let Some(class) = &storage.storage_class_name {
        spec["storageClassName"] = json!(class);
    }
    Some(json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim(plane.names), "namespace": plane.names.namespace, "labels": plane.names.labels()},
        "spec": spec,
    }))
}

fn claim(names: &Names) -> String {
    format!("{}-data", names.workload)
}

/// The Deployment.
pub(crate) fn deployment(plane: &Plane<'_>) -> Value {
    let has_storage = plane.spec.database.as_ref().is_some_and(|database| database.storage.is_some());
    let mut pod = json!({
        "metadata": {"labels": plane.names.labels()},
        "spec": {
            "serviceAccountName": plane.service_account(),
            "terminationGracePeriodSeconds": 60,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "fsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container(plane)],
            "volumes": volumes(plane, has_storage),
        },
    });
    if !plane.spec.image_pull_secrets.is_empty() {
        pod["spec"]["imagePullSecrets"] = json!(plane.spec.image_pull_secrets);
    }
    if let Value::Object(pod) = &mut pod {
        overlay::apply(pod, &plane.spec.template);
        let labels = json!({"metadata": {"labels": plane.names.labels()}});
        overlay::apply(pod, labels.as_object().expect("an object"));
    }
    // Two servers cannot have one embedded database, not even for a moment.
    let strategy = if has_storage { "Recreate" } else { "RollingUpdate" };
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(&plane.names.workload, plane.names, plane.owner),
        "spec": {
            "replicas": plane.spec.replicas,
            "selector": {"matchLabels": plane.names.labels()},
            "strategy": {"type": strategy},
            "template": pod,
        },
    })
}

fn container(plane: &Plane<'_>) -> Value {
    let mut args = vec!["server".to_owned()];
    args.extend(plane.spec.extra_args.iter().cloned());
    let mut ports = vec![json!({"name": "http", "containerPort": 8080, "protocol": "TCP"})];
    if plane.has_tls() {
        ports.push(json!({"name": "https", "containerPort": 8443, "protocol": "TCP"}));
    }
    let probe = |period: u32, failures: u32| json!({"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": period, "failureThreshold": failures});
    let mut container = json!({
        "name": CONTAINER,
        "image": plane.spec.image,
        "command": ["coder"],
        "args": args,
        "env": environment(plane),
        "ports": ports,
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": probe(2, 150),
        "livenessProbe": probe(20, 6),
        "readinessProbe": probe(5, 2),
        "volumeMounts": mounts(plane),
    });
    if let Some(resources) = &plane.spec.resources {
        container["resources"] = json!(resources);
    }
    container
}

fn environment(plane: &Plane<'_>) -> Vec<Value> {
    let plain = |name: &str, value: &str| json!({"name": name, "value": value});
    let url = plane.spec.access_url.clone().unwrap_or_else(|| plane.url());
    let mut variables = vec![
        plain("CODER_HTTP_ADDRESS", "0.0.0.0:8080"),
        plain("CODER_ACCESS_URL", &url),
        plain("CODER_DATA_DIR", DATA),
        plain("CODER_CACHE_DIRECTORY", &format!("{DATA}/cache")),
        plain("HOME", "/home/coder"),
    ];
    if let Some(secret) = plane.spec.database.as_ref().and_then(|database| database.url_secret_ref.as_ref()) {
        let reference = json!({"name": secret.name, "key": secret.key_or("url")});
        variables.push(json!({"name": "CODER_PG_CONNECTION_URL", "valueFrom": {"secretKeyRef": reference}}));
    }
    if plane.has_tls() {
        let files = |file: &str| {
            let names = plane.spec.tls.secret_names.iter();
            names.map(|name| format!("/etc/coder/tls/{name}/{file}")).collect::<Vec<_>>().join(",")
        };
        variables.push(plain("CODER_TLS_ENABLE", "true"));
        variables.push(plain("CODER_TLS_ADDRESS", "0.0.0.0:8443"));
        variables.push(plain("CODER_TLS_CERT_FILE", &files("tls.crt")));
        variables.push(plain("CODER_TLS_KEY_FILE", &files("tls.key")));
    }
    for variable in &plane.spec.extra_env {
        variables.retain(|known| known["name"] != json!(variable.name));
        variables.push(json!(variable));
    }
    variables
}

fn mounts(plane: &Plane<'_>) -> Vec<Value> {
    let mut mounts: Vec<Value> = [("data", DATA), ("home", "/home/coder"), ("tmp", "/tmp")]
        .map(|(name, path)| json!({"name": name, "mountPath": path}))
        .into();
    mounts.extend(plane.spec.tls.secret_names.iter().enumerate().map(|(index, name)| {
        json!({"name": format!("tls-{index}"), "mountPath": format!("/etc/coder/tls/{name}"), "readOnly": true})
    }));
    mounts
}

fn volumes(plane: &Plane<'_>, has_storage: bool) -> Vec<Value> {
    let data = if has_storage {
        json!({"name": "data", "persistentVolumeClaim": {"claimName": claim(plane.names)}})
    } else {
        json!({"name": "data", "emptyDir": {}})
    };
    let mut volumes =
        vec![data, json!({"name": "home", "emptyDir": {}}), json!({"name": "tmp", "emptyDir": {}})];
    volumes.extend(
        plane
            .spec
            .tls
            .secret_names
            .iter()
            .enumerate()
            .map(|(index, name)| json!({"name": format!("tls-{index}"), "secret": {"secretName": name}})),
    );
    volumes
}

/// A Secret with these texts.
pub(crate) fn secret(
    name: &str,
    names: &Names,
    owner: &OwnerReference,
    entries: &BTreeMap<&str, &str>,
) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name, names, owner),
        "type": "Opaque",
        "stringData": entries,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render<T>(spec: Value, with: impl FnOnce(&Plane<'_>) -> T) -> T {
        let spec: CoderControlPlaneSpec = serde_json::from_value(spec).unwrap();
        let names = Names::of_control_plane("coder", "main");
        with(&Plane { names: &names, spec: &spec, owner: &OwnerReference::default() })
    }

    fn variable(deployment: &Value, name: &str) -> Value {
        let variables = deployment["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == json!(name)).cloned().unwrap_or_default()
    }

    #[test]
    fn the_url_follows_port_and_certificates() {
        let url = |spec| render(spec, |plane| plane.url());
        assert_eq!(url(json!({})), "http://main.coder.svc.cluster.local:80");
        assert_eq!(url(json!({"service": {"port": 8080}})), "http://main.coder.svc.cluster.local:8080");
        assert_eq!(
            url(json!({"tls": {"secretNames": ["cert"]}})),
            "https://main.coder.svc.cluster.local:443"
        );
    }

    #[test]
    fn postgres_comes_from_a_secret() {
        let spec = json!({"database": {"urlSecretRef": {"name": "db"}}, "replicas": 2});
        let deployment = render(spec, deployment);
        let source = variable(&deployment, "CODER_PG_CONNECTION_URL");
        assert_eq!(source["valueFrom"]["secretKeyRef"], json!({"name": "db", "key": "url"}));
        assert_eq!(deployment["spec"]["strategy"]["type"], json!("RollingUpdate"));
    }

    #[test]
    fn an_embedded_database_has_a_volume_without_an_owner_and_never_two_servers() {
        let spec = || json!({"database": {"storage": {"size": "1Gi"}}});
        let claim = render(spec(), volume_claim).unwrap();
        assert_eq!(claim["metadata"].get("ownerReferences"), None);
        assert_eq!(claim["spec"]["resources"]["requests"]["storage"], json!("1Gi"));
        assert_eq!(render(spec(), deployment)["spec"]["strategy"]["type"], json!("Recreate"));
    }

    #[test]
    fn certificates_are_mounted_and_named() {
        let deployment = render(json!({"tls": {"secretNames": ["a", "b"]}}), deployment);
        assert_eq!(
            variable(&deployment, "CODER_TLS_CERT_FILE")["value"],
            json!("/etc/coder/tls/a/tls.crt,/etc/coder/tls/b/tls.crt")
        );
        let mounts =
            deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"].as_array().unwrap();
        assert_eq!(mounts.len(), 5);
    }

    #[test]
    fn a_service_name_begins_with_a_letter() {
        assert_eq!(Names::of_control_plane("coder", "1st").workload, "coder-1st");
    }
}
