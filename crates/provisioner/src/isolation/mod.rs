//! Keeps the programs of a job apart from the daemon and from other jobs: they see a machine in which the daemon's
//! secrets, the directories of other jobs and, where possible, all other processes are missing (docs/isolation.md).
//!
//! Terraform is started in namespaces of its own, once per command. Nothing stays running for it, and nothing is copied:
//! what is not for the job is covered by empty directories that only the job sees.

mod account;
mod cgroups;
mod home;
mod limits;
#[cfg(target_os = "linux")]
mod mount_plan;
#[cfg(target_os = "linux")]
mod mounts;
mod process;
#[cfg(target_os = "linux")]
mod process_setup;
mod protect;
mod registry;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub(crate) use groups::JobCgroups;
pub(crate) use home::JobHome;
pub(crate) use limits::AppliedLimits;
pub use limits::JobLimits;
pub(crate) use process::{Process, spawn};
pub use protect::protect_process;
pub(crate) use registry::DaemonRegistry;

/// Whether jobs are kept apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IsolationMode {
    /// As far as the machine allows it.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// The daemon does not start where it is not possible.
    Required,
}

impl fmt::Display for IsolationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::None => "none",
            Self::Required => "required",
        })
    }
}

impl FromStr for IsolationMode {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            "required" => Ok(Self::Required),
            _ => Err("must be auto, none or required"),
        }
    }
}

/// What holds on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Jobs run like the daemon.
    #[default]
    None,
    /// Directories are hidden. Other processes are visible, but their memory and environment cannot be read.
    Directories,
    /// Directories are hidden, and a job sees no process but its own.
    Full,
}

impl IsolationLevel {
    /// The word in `/status`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Directories => "directories",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for IsolationLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a daemon has found out about isolation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IsolationSupport {
    /// What holds.
    pub level: IsolationLevel,
    /// Why it is not more; none when it is all, or when nobody asked for it.
    pub reason: Option<String>,
    /// It takes a user namespace.
    user_namespace: bool,
}

impl IsolationSupport {
    /// Tries what the kernel allows, once per process; the answer does not change while it runs.
    pub(crate) fn of(wanted: IsolationMode) -> Self {
        if wanted == IsolationMode::None { Self::default() } else { probe().clone() }
    }
}

#[cfg(target_os = "linux")]
fn probe() -> &'static IsolationSupport {
    static SUPPORT: std::sync::OnceLock<IsolationSupport> = std::sync::OnceLock::new();
    SUPPORT.get_or_init(process::probe)
}

#[cfg(not(target_os = "linux"))]
fn probe() -> &'static IsolationSupport {
    const SUPPORT: &IsolationSupport =
        &IsolationSupport { level: IsolationLevel::None, reason: None, user_namespace: false };
    SUPPORT
}

/// How a daemon starts the programs of its jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct SandboxConfig {
    pub(crate) support: IsolationSupport,
    /// The daemon's cache, of which jobs see only what they run.
    pub(crate) cache: PathBuf,
    /// Files and directories that jobs must not see.
    pub(crate) hidden: Vec<PathBuf>,
    /// Programs and directories of them, which jobs see wherever they are, and do not change.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) home: JobHome,
    /// What the daemons of this user have.
    pub(crate) registry: DaemonRegistry,
    pub(crate) limits: AppliedLimits,
}

impl SandboxConfig {
    /// The number by which a job's Terraform knows a process that lives as long as the daemon: it looks whether the
    /// process of a provider is alive, and sees only its own.
    pub(crate) const fn long_lived_pid(&self) -> Option<u32> {
        match self.support.level {
            // In namespaces of its own Terraform is the first process.
            IsolationLevel::Full => Some(1),
            IsolationLevel::None | IsolationLevel::Directories => None,
        }
    }

    /// How the commands of one job are started.
    pub(crate) fn for_job<'a>(&'a self, job: &'a Path, groups: &'a JobCgroups) -> Sandbox<'a> {
        Sandbox { config: self, job, groups, writable: None }
    }
}

/// The place of one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sandbox<'a> {
    pub(crate) config: &'a SandboxConfig,
    /// The job's directory: all it sees of the directories of jobs.
    pub(crate) job: &'a Path,
    pub(crate) groups: &'a JobCgroups,
    /// The directory of the cache that may be written to.
    pub(crate) writable: Option<&'a Path>,
}

impl<'a> Sandbox<'a> {
    /// For a command that fills a directory of the daemon's cache.
    pub(crate) const fn with_writable(self, dir: &'a Path) -> Self {
        Self { writable: Some(dir), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_choose_the_isolation() {
        for isolation in [IsolationMode::Auto, IsolationMode::None, IsolationMode::Required] {
            assert_eq!(isolation.to_string().parse(), Ok(isolation));
        }
        assert!("full".parse::<IsolationMode>().is_err());
    }
}
