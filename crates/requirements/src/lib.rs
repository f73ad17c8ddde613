//! What tests need of a machine besides Rust, and the only way to skip a test.
//!
//! A test begins with [`require!`], or asks [`has`], [`program`] or [`directory`] and returns when the answer is no. Every
//! such answer is appended to the file that [`RECORD_VARIABLE`] names, so that `cargo xtask test` can list and count the
//! skipped tests at its end; the test harness captures the output of a passing test. With `CI=true` a requirement that has no entry in
//! [`Requirement::missing_in_ci`] fails the test instead.
//!
//! The probes use other programs than the product does (`unshare`, `mount`): a product that wrongly reports that the kernel
//! has no namespaces must fail a test, not skip it.

mod probe;
mod record;

use std::path::PathBuf;

pub use record::{RECORD_VARIABLE, Skips, read};

/// Something that a test needs and a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// `terraform` in the `PATH`.
    Terraform,
    /// OpenTofu: `tofu` in the `PATH`, or the program that `CODER_TEST_TOFU` names.
    Tofu,
    /// `go` in the `PATH`.
    Go,
    /// `initdb` and `postgres` in the `PATH`.
    Postgres,
    /// `git` in the `PATH`.
    Git,
    /// Helm: the program that `CODER_TEST_HELM` names, `helm` in the `PATH`, or the one that `cargo xtask helm` built.
    Helm,
    /// `podman` and `runc`, and permission to run containers of images that were made here.
    Podman,
    /// The root directory of a minimal Debian, named by `CODER_TEST_DEBIAN_ROOT`.
    DebianRoot,
    /// A static program of this workspace, named by `CODER_TEST_STATIC_BINARY`.
    StaticBinary,
    /// `ssh`, `sftp` and `scp` of OpenSSH in the `PATH`.
    OpenSsh,
    /// `rsync` in the `PATH`.
    Rsync,
    /// `gpg` and `gpgconf` of GnuPG in the `PATH`.
    GnuPg,
    /// `curl` in the `PATH`.
    Curl,
    /// `chromium` in the `PATH`.
    Chromium,
    /// `strace` in the `PATH`, and permission to trace.
    Strace,
    /// A kernel that lets this user make mount and process namespaces.
    Namespaces,
    /// A kernel that lets this user make a network namespace and set up loopback there.
    NetworkNamespaces,
    /// Permission to mount a file system where every process sees it.
    Mounts,
    /// A hierarchy of control groups (version 1) in which this user may make groups that limit processes.
    ControlGroupsV1,
    /// A hierarchy of control groups (version 2) in which this user may make groups.
    ControlGroupsV2,
    /// The same, where groups can also get a controller that this process's own group has.
    ControlGroupControllersV2,
    /// Plans and states with the official conversion of each, in the directory `CODER_TEST_TERRAFORM_FIXTURES`.
    ConversionFixtures,
    /// Captures of the official daemon protocol, in the directory `CODER_TEST_VECTORS`.
    ProtocolCaptures,
    /// `kube-apiserver` and `kube-controller-manager` in the directory `CODER_TEST_KUBERNETES` or in the cache of
    /// `tools/kubeenv`, and `etcd` in the `PATH`.
    Kubernetes,
    /// An official program, named by `CODER_TEST_REFERENCE_DAEMON`.
    OfficialDaemon,
    /// An official server, named by `CODER_TEST_REFERENCE_SERVER` and `CODER_TEST_REFERENCE_TOKEN`.
    OfficialServer,
}

impl Requirement {
    /// All of them.
    pub const ALL: [Self; 26] = [
        Self::Terraform,
        Self::Tofu,
        Self::Go,
        Self::Postgres,
        Self::Git,
        Self::Helm,
        Self::Podman,
        Self::DebianRoot,
        Self::StaticBinary,
        Self::OpenSsh,
        Self::Rsync,
        Self::GnuPg,
        Self::Curl,
        Self::Chromium,
        Self::Strace,
        Self::Namespaces,
        Self::NetworkNamespaces,
        Self::Mounts,
        Self::ControlGroupsV1,
        Self::ControlGroupsV2,
        Self::ControlGroupControllersV2,
        Self::ConversionFixtures,
        Self::ProtocolCaptures,
        Self::Kubernetes,
        Self::OfficialDaemon,
        Self::OfficialServer,
    ];

    /// The name in the record and in the summary.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Terraform => "terraform",
            Self::Tofu => "tofu",
            Self::Go => "go",
            Self::Postgres => "postgres",
            Self::Git => "git",
            Self::Helm => "helm",
            Self::Podman => "podman",
            Self::DebianRoot => "debian-root",
            Self::StaticBinary => "static-binary",
            Self::OpenSsh => "openssh",
            Self::Rsync => "rsync",
            Self::GnuPg => "gnupg",
            Self::Curl => "curl",
            Self::Chromium => "chromium",
            Self::Strace => "strace",
            Self::Namespaces => "namespaces",
            Self::NetworkNamespaces => "network-namespaces",
            Self::Mounts => "mounts",
            Self::ControlGroupsV1 => "control-groups-v1",
            Self::ControlGroupsV2 => "control-groups-v2",
            Self::ControlGroupControllersV2 => "control-group-controllers-v2",
            Self::ConversionFixtures => "conversion-fixtures",
            Self::ProtocolCaptures => "protocol-captures",
            Self::Kubernetes => "kubernetes",
            Self::OfficialDaemon => "official-daemon",
            Self::OfficialServer => "official-server",
        }
    }

    /// The instruction for installing it.
    #[must_use]
    pub fn how_to_get(self) -> &'static str {
        match self {
            Self::Terraform => "install Terraform 1.1 or newer into the PATH",
            Self::Tofu => "install OpenTofu into the PATH, or name the program in CODER_TEST_TOFU",
            Self::Go => "install the package golang",
            Self::Postgres => "install the package postgresql, with its bin directory in the PATH",
            Self::Git => "install the package git",
            Self::Helm => "run cargo xtask helm, which builds it with Go",
            Self::Podman => "install the packages podman and runc, and run as root",
            Self::DebianRoot => {
                "run debootstrap --variant=minbase --include=ca-certificates,curl,git,openssh-client,wget bookworm DIR as root, and set \
                 CODER_TEST_DEBIAN_ROOT to DIR"
            }
            Self::StaticBinary => {
                "run cargo xtask dist, and set CODER_TEST_STATIC_BINARY to the program that it names"
            }
            Self::OpenSsh => "install the package openssh-client",
            Self::Rsync => "install the package rsync",
            Self::GnuPg => "install the package gnupg",
            Self::Curl => "install the package curl",
            Self::Chromium => "install the package chromium",
            Self::Strace => "install the package strace, and permit ptrace",
            Self::Namespaces => "permit mount and process namespaces (or run as root)",
            Self::NetworkNamespaces => "install the package iproute2, and permit network namespaces",
            Self::Mounts => "run as root with CAP_SYS_ADMIN",
            Self::ControlGroupsV1 => "mount control groups of version 1, writable for this user",
            Self::ControlGroupsV2 => "mount control groups of version 2, writable for this user",
            Self::ControlGroupControllersV2 => {
                "mount control groups of version 2 with the controller pids, memory, cpu or hugetlb, writable for this user"
            }
            Self::ConversionFixtures => "set CODER_TEST_TERRAFORM_FIXTURES to their directory",
            Self::ProtocolCaptures => "set CODER_TEST_VECTORS to their directory",
            Self::Kubernetes => {
                "install the package etcd-server, run tools/kubeenv/build.sh DIR, and set CODER_TEST_KUBERNETES to the directory that it prints"
            }
            Self::OfficialDaemon => "set CODER_TEST_REFERENCE_DAEMON to the path of an official binary",
            Self::OfficialServer => "set CODER_TEST_REFERENCE_SERVER and CODER_TEST_REFERENCE_TOKEN",
        }
    }

    /// Why a run with `CI=true` may lack it; none when it must be there.
    ///
    /// This is the allow-list of skips with `CI=true`.
    #[must_use]
    pub fn missing_in_ci(self) -> Option<&'static str> {
        match self {
            Self::Tofu => Some("no package archive has OpenTofu"),
            Self::ConversionFixtures | Self::ProtocolCaptures => {
                Some("captures of official programs are not part of this repository")
            }
            Self::OfficialDaemon | Self::OfficialServer => Some(
                "official programs are not downloaded; our own program runs the same steps in a test of its own",
            ),
            Self::Kubernetes => {
                Some("the Kubernetes programs are built once by tools/kubeenv, which takes minutes")
            }
            Self::Namespaces
            | Self::NetworkNamespaces
            | Self::Mounts
            | Self::Strace
            | Self::ControlGroupsV1
            | Self::ControlGroupsV2
            | Self::ControlGroupControllersV2
            | Self::Podman => {
                Some("the kernel, or the container that the run is in, decides what it permits")
            }
            Self::Chromium => Some("it is large, and the terminal's protocol has tests without it"),
            Self::DebianRoot => Some("it is made by root from a package archive"),
            Self::StaticBinary => Some("tests use debug builds, which are linked dynamically"),
            Self::Terraform
            | Self::Go
            | Self::Postgres
            | Self::Git
            | Self::Helm
            | Self::OpenSsh
            | Self::Rsync
            | Self::GnuPg
            | Self::Curl => None,
        }
    }
}

/// Returns from a test that needs something the machine lacks; the test is recorded as skipped. `require!(Terraform);` is
/// the guard alone, `require!(program Terraform)` also has the path of the program, `require!(directory ProtocolCaptures)`
/// that of the directory.
///
/// # Panics
/// As [`has`].
#[macro_export]
macro_rules! require {
    ($requirement:ident) => {
        if !$crate::has($crate::Requirement::$requirement) {
            return;
        }
    };
    ($find:ident $requirement:ident) => {
        match $crate::$find($crate::Requirement::$requirement) {
            Some(found) => found,
            None => return,
        }
    };
}

/// Whether the machine has it. When it does not, the running test is recorded as skipped: it must return.
///
/// # Panics
/// With `CI=true`, unless the allow-list has the requirement.
#[must_use]
#[track_caller]
pub fn has(requirement: Requirement) -> bool {
    let found = probe::is_there(requirement);
    if !found {
        record::skip(requirement);
    }
    found
}

/// The program that stands for it; none when it is missing, and then the running test is recorded as skipped.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn program(requirement: Requirement) -> Option<PathBuf> {
    let found = probe::program(requirement);
    if found.is_none() {
        record::skip(requirement);
    }
    found
}

/// The directory that holds it; none when it is missing, and then the running test is recorded as skipped.
///
/// # Panics
/// As [`has`].
#[must_use]
#[track_caller]
pub fn directory(requirement: Requirement) -> Option<PathBuf> {
    let found = probe::directory(requirement);
    if found.is_none() {
        record::skip(requirement);
    }
    found
}

/// Whether the machine has it, without recording anything: for programs that are not tests.
#[must_use]
pub fn is_there(requirement: Requirement) -> bool {
    probe::is_there(requirement)
}

/// Whether `CI` is `true`.
#[must_use]
pub fn in_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| value == "true")
}
