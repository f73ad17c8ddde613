//! The probe of each requirement. A result is kept for the life of the process.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::Requirement;

/// Answers of probes that start a program.
static PROBE_ANSWERS: Mutex<Vec<(Requirement, bool)>> = Mutex::new(Vec::new());

/// Whether the machine has it.
pub(crate) fn is_there(requirement: Requirement) -> bool {
    // Held over the probe: tests of one program that run side by side probe once.
    let mut answers = PROBE_ANSWERS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some((_, found)) = answers.iter().find(|(known, _)| *known == requirement) {
        return *found;
    }
    let found = look(requirement);
    answers.push((requirement, found));
    found
}

fn look(requirement: Requirement) -> bool {
    match requirement {
        Requirement::Terraform
        | Requirement::Tofu
        | Requirement::Git
        | Requirement::Go
        | Requirement::Helm => program(requirement).is_some(),
        Requirement::Podman => can_run_containers(),
        Requirement::OpenSsh => ["ssh", "sftp", "scp"].iter().all(|name| in_path(name).is_some()),
        Requirement::Postgres => in_path("initdb").is_some() && in_path("postgres").is_some(),
        Requirement::Rsync => in_path("rsync").is_some(),
        Requirement::GnuPg => ["gpg", "gpgconf"].iter().all(|name| in_path(name).is_some()),
        Requirement::Curl => in_path("curl").is_some(),
        Requirement::Chromium => in_path("chromium").is_some(),
        Requirement::Strace => works("strace", &["-f", "-o", "/dev/null", "true"]),
        // The first form is for root, the second for everybody where user namespaces are permitted.
        Requirement::Namespaces => {
            works("unshare", &["--mount", "--pid", "--fork", "--mount-proc", "true"])
                || works(
                    "unshare",
                    &["--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "true"],
                )
        }
        Requirement::NetworkNamespaces => {
            works("unshare", &["--map-root-user", "--net", "ip", "link", "set", "lo", "up"])
        }
        Requirement::Mounts => can_mount(),
        Requirement::ControlGroupsV1 => can_make_group(Path::new("/sys/fs/cgroup/pids"), "pids.max"),
        Requirement::ControlGroupsV2 => ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
            .iter()
            .any(|root| can_make_group(Path::new(root), "cgroup.events")),
        Requirement::ControlGroupControllersV2 => can_pass_on_a_controller(),
        Requirement::ConversionFixtures | Requirement::ProtocolCaptures | Requirement::DebianRoot => {
            directory(requirement).is_some()
        }
        Requirement::Kubernetes => in_path("etcd").is_some() && directory(requirement).is_some(),
        Requirement::OfficialDaemon | Requirement::StaticBinary => program(requirement).is_some(),
        Requirement::OfficialServer => ["CODER_TEST_REFERENCE_SERVER", "CODER_TEST_REFERENCE_TOKEN"]
            .iter()
            .all(|name| std::env::var_os(name).is_some()),
    }
}

pub(crate) fn program(requirement: Requirement) -> Option<PathBuf> {
    let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
    match requirement {
        Requirement::Terraform => in_path("terraform"),
        Requirement::Tofu => named("CODER_TEST_TOFU").or_else(|| in_path("tofu")),
        Requirement::Go => in_path("go"),
        Requirement::Git => in_path("git"),
        Requirement::Chromium => in_path("chromium"),
        Requirement::Helm => named("CODER_TEST_HELM").or_else(|| in_path("helm")).or_else(built_helm),
        Requirement::Strace => in_path("strace"),
        Requirement::OfficialDaemon => named("CODER_TEST_REFERENCE_DAEMON"),
        Requirement::StaticBinary => named("CODER_TEST_STATIC_BINARY").filter(|program| program.is_file()),
        _ => None,
    }
}

/// Where `cargo xtask helm` puts it.
fn built_helm() -> Option<PathBuf> {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(default, PathBuf::from);
    Some(target.join("tools/helm")).filter(|program| program.is_file())
}

/// The directory of a requirement: named by a variable, or beside the checkout.
pub(crate) fn directory(requirement: Requirement) -> Option<PathBuf> {
    if requirement == Requirement::Kubernetes {
        return kubernetes();
    }
    let (variable, beside) = match requirement {
        Requirement::DebianRoot => {
            let named = std::env::var_os("CODER_TEST_DEBIAN_ROOT").map(PathBuf::from);
            return named.filter(|root| root.join("bin/sh").exists());
        }
        Requirement::ConversionFixtures => {
            ("CODER_TEST_TERRAFORM_FIXTURES", "../../../shared/fixtures/terraform")
        }
        Requirement::ProtocolCaptures => ("CODER_TEST_VECTORS", "../../../shared/vectors"),
        _ => return None,
    };
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join(beside);
    let found = std::env::var_os(variable).map_or_else(beside, PathBuf::from);
    found.is_dir().then_some(found)
}

/// The directory with the Kubernetes programs: named by a variable, or where `tools/kubeenv` has built them.
fn kubernetes() -> Option<PathBuf> {
    let named = std::env::var_os("CODER_TEST_KUBERNETES").map(PathBuf::from);
    let has_all = |directory: &PathBuf| {
        ["kube-apiserver", "kube-controller-manager"].iter().all(|program| directory.join(program).is_file())
    };
    if let Some(named) = named {
        return Some(named).filter(has_all);
    }
    let cache = PathBuf::from(std::env::var_os("HOME")?).join(".cache/coder-kubeenv");
    let mut versions: Vec<PathBuf> =
        std::fs::read_dir(cache).ok()?.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    versions.into_iter().rev().find(has_all)
}

fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}

fn works(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Whether root has podman and runc. Whether the kernel permits containers shows only when one is started.
fn can_run_containers() -> bool {
    works("podman", &["--version"]) && works("runc", &["--version"]) && works("test", &["-w", "/var/lib"])
}

/// Mounts a small file system on a new directory, and removes both.
fn can_mount() -> bool {
    let directory = std::env::temp_dir().join(format!("coder-mount-probe-{}", std::process::id()));
    if std::fs::create_dir(&directory).is_err() {
        return false;
    }
    let place = directory.to_string_lossy().into_owned();
    let mounted = works("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", &place]);
    let unmounted = !mounted || works("umount", &[&place]);
    let removed = std::fs::remove_dir(&directory).is_ok();
    mounted && unmounted && removed
}

/// Creates a group below `root`, checks for the file of its version, and removes the group.
fn can_make_group(root: &Path, file: &str) -> bool {
    let group = root.join(format!("coder-group-probe-{}", std::process::id()));
    if std::fs::create_dir(&group).is_err() {
        return false;
    }
    let found = group.join(file).exists();
    std::fs::remove_dir(&group).is_ok() && found
}

/// Whether the groups below this process's own one have a controller, or can get one. What is passed on for the probe is
/// taken back.
fn can_pass_on_a_controller() -> bool {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let own = groups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].iter().any(|root| {
        let group = Path::new(root).join(own);
        let has = |file: &str, controller: &str| {
            let list = std::fs::read_to_string(group.join(file)).unwrap_or_default();
            list.split_whitespace().any(|one| one == controller)
        };
        let set = |sign: char, controller: &str| {
            std::fs::write(group.join("cgroup.subtree_control"), format!("{sign}{controller}")).is_ok()
        };
        let controllers = ["pids", "memory", "cpu", "hugetlb"];
        let Some(controller) = controllers.into_iter().find(|one| has("cgroup.controllers", one)) else {
            return false;
        };
        can_make_group(&group, "cgroup.events")
            && (has("cgroup.subtree_control", controller) || set('+', controller) && set('-', controller))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_the_path_has_it() {
        assert!(in_path("sh").is_some());
        assert_eq!(in_path("a-program-that-nobody-has"), None);
        assert!(works("true", &[]) && !works("false", &[]) && !works("a-program-that-nobody-has", &[]));
    }

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let ours = |path: &Path| path.to_string_lossy().contains(&format!("-probe-{}", std::process::id()));
        for requirement in [
            Requirement::Mounts,
            Requirement::ControlGroupsV1,
            Requirement::ControlGroupsV2,
            Requirement::ControlGroupControllersV2,
        ] {
            let first = look(requirement);
            assert_eq!(first, look(requirement), "{} is decided by chance", requirement.name());
        }
        let left = |folder: &Path| {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            entries.map(|entry| entry.path()).filter(|path| ours(path)).collect::<Vec<_>>()
        };
        assert!(left(&std::env::temp_dir()).is_empty());
        assert!(left(Path::new("/sys/fs/cgroup")).is_empty());
        assert!(left(Path::new("/sys/fs/cgroup/pids")).is_empty());
    }

    #[test]
    fn a_group_is_not_a_mere_directory() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!can_make_group(directory.path(), "pids.max"));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
