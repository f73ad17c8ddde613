//! A pod as a local process: its directory, its address, its variables.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Container, EnvVar, Pod, Probe, Secret};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Api, Client, ResourceExt as _};
use tokio::process::{Child, Command};

/// An address of loopback for each pod, so that all of them can have the same ports.
pub(super) fn address() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = (number + 1).to_be_bytes();
    // Another test program has other addresses.
    let program = u8::try_from(64 + std::process::id() % 128).unwrap();
    Ipv4Addr::new(127, program, high, low)
}

/// Where the volumes of a pod are, by the path at which its container sees them.
pub(super) type Mounts = BTreeMap<String, PathBuf>;

/// Makes the volumes: directories, claims, which outlive the pod, and the files of Secrets.
pub(super) async fn mounts(client: &Client, pod: &Pod, directory: &Path) -> Option<Mounts> {
    let spec = pod.spec.as_ref()?;
    let namespace = pod.namespace()?;
    let mut mounts = Mounts::new();
    for mount in spec.containers[0].volume_mounts.iter().flatten() {
        let volume = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name)?;
        let own = directory.join(pod.uid()?).join(&volume.name);
        let path = match &volume.persistent_volume_claim {
            Some(claim) => directory.join("claims").join(&namespace).join(&claim.claim_name),
            None => own,
        };
        std::fs::create_dir_all(&path).unwrap();
        if let Some(secret) = &volume.secret {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
            let secret = secrets.get_opt(secret.secret_name.as_deref()?).await.ok()??;
            for (name, value) in secret.data.unwrap_or_default() {
                std::fs::write(path.join(name), value.0).unwrap();
            }
        }
        mounts.insert(mount.mount_path.clone(), path);
    }
    Some(mounts)
}

/// A text with the places of this machine instead of those in the container.
fn localized(text: &str, mounts: &Mounts, ip: Ipv4Addr) -> String {
    // A list of directories has several paths.
    let parts = text.split(':').map(|part| {
        let of_mount = mounts.iter().rev().find_map(|(at, local)| {
            let rest = part.strip_prefix(at.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{}{rest}", local.display()))
        });
        of_mount.unwrap_or_else(|| part.to_owned())
    });
    parts.collect::<Vec<_>>().join(":").replace("0.0.0.0", &ip.to_string())
}

/// The value of a variable; none if what it refers to is not there.
async fn value(client: &Client, pod: &Pod, variable: &EnvVar, ip: Ipv4Addr) -> Option<String> {
    let Some(source) = &variable.value_from else { return Some(variable.value.clone().unwrap_or_default()) };
    if let Some(reference) = &source.secret_key_ref {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), &pod.namespace()?);
        let secret = secrets.get_opt(&reference.name).await.ok()??;
        return String::from_utf8(secret.data?.get(&reference.key)?.0.clone()).ok();
    }
    if let Some(reference) = &source.resource_field_ref {
        return limit(container(pod), &reference.resource);
    }
    match source.field_ref.as_ref()?.field_path.as_str() {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "status.podIP" => Some(ip.to_string()),
        _ => None,
    }
}

/// A limit of memory in bytes: `limits.memory`. The API server writes 4096Mi as 4Gi.
fn limit(container: &Container, resource: &str) -> Option<String> {
    let limits = container.resources.as_ref()?.limits.as_ref()?;
    bytes(&limits.get(resource.strip_prefix("limits.")?)?.0)
}

fn bytes(quantity: &str) -> Option<String> {
    let (number, shift) = match quantity.strip_suffix("Gi") {
        Some(number) => (number, 30),
        None => (quantity.strip_suffix("Mi")?, 20),
    };
    Some((number.parse::<u64>().ok()? << shift).to_string())
}

/// Starts the container of a pod. None if something that it refers to is not there yet.
pub(super) async fn start(
    client: &Client,
    pod: &Pod,
    program: &Path,
    variables: &[(String, String)],
    mounts: &Mounts,
    log: &Path,
    ip: Ipv4Addr,
) -> Option<Child> {
    let container = container(pod);
    let is_coder = container
        .command
        .as_deref()
        .is_some_and(|command| matches!(command, [one] if one.rsplit('/').next() == Some("coder")));
    assert!(is_coder, "only this program is here, and no {:?}", container.command);
    let mut command = Command::new(program);
    command.env_clear();
    for argument in container.args.iter().flatten() {
        command.arg(localized(argument, mounts, ip));
    }
    for variable in container.env.iter().flatten() {
        command.env(&variable.name, localized(&value(client, pod, variable, ip).await?, mounts, ip));
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(temporary) = mounts.get("/tmp") {
        command.env("TMPDIR", temporary);
    }
    let file = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
    command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file).kill_on_drop(true);
    Some(command.spawn().unwrap())
}

pub(super) fn container(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

/// The path and the port that a probe asks.
pub(super) fn target<'a>(container: &'a Container, probe: &'a Probe) -> Option<(&'a str, u16)> {
    let get = probe.http_get.as_ref()?;
    let port = match &get.port {
        IntOrString::Int(port) => *port,
        IntOrString::String(name) => {
            let ports = container.ports.iter().flatten();
            ports.into_iter().find(|port| port.name.as_ref() == Some(name))?.container_port
        }
    };
    Some((get.path.as_deref().unwrap_or("/"), u16::try_from(port).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_addresses_become_local_ones() {
        let mounts = Mounts::from([
            ("/tmp".to_owned(), "/x/tmp".into()),
            ("/var/cache".to_owned(), "/x/cache".into()),
        ]);
        let ip = Ipv4Addr::new(127, 64, 0, 1);
        for (text, local) in [
            ("/var/cache/coder", "/x/cache/coder"),
            ("/var/caches", "/var/caches"),
            ("/etc/ssl:/tmp", "/etc/ssl:/x/tmp"),
            ("0.0.0.0:2112", "127.64.0.1:2112"),
            ("plain", "plain"),
        ] {
            assert_eq!(localized(text, &mounts, ip), local);
        }
        assert_ne!(address(), address());
    }

    #[test]
    fn limits_of_memory_become_bytes() {
        for (quantity, expected) in [("4Gi", "4294967296"), ("512Mi", "536870912")] {
            assert_eq!(bytes(quantity).as_deref(), Some(expected));
        }
        assert_eq!(bytes("2"), None);
    }
}
