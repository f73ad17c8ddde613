//! Isolates the programs of a job from the daemon and from other jobs: they see a machine without the daemon's
//! secrets, the directories of other jobs and, where possible, all other processes (docs/isolation.md).
//!
//! Each Terraform command gets namespaces of its own. No helper process stays, and nothing is copied: paths
//! that are not for the job are masked by empty directories that only the job sees.

mod account;
mod cgroups;
mod home;
#[cfg(target_os = "linux")]
mod keyrings;
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

pub(crate) use cgroups::JobCgroups;
pub(crate) use home::JobHome;
pub(crate) use limits::AppliedLimits;
pub use limits::JobLimits;
pub(crate) use process::{Process, spawn};
pub use protect::protect_process;
pub(crate) use registry::DaemonRegistry;

/// Whether jobs are isolated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IsolationMode {
    /// As far as the machine permits.
    #[default]
    Auto,
    /// Never.
    None,
    /// The daemon does not start where jobs cannot be isolated.
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

/// How far jobs are isolated on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IsolationLevel {
    /// Not at all: jobs run like the daemon.
    #[default]
    None,
    /// Directories are hidden. Other processes are visible, but their memory and environment cannot be read.
    Directories,
    /// Directories are hidden, and a job sees no process but its own.
    Full,
}

impl IsolationLevel {
    /// The value in `/status`.
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

/// How far this machine can isolate jobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct IsolationSupport {
    pub level: IsolationLevel,
    /// Why it is not higher; `None` for the highest level, or when isolation was not requested.
    pub reason: Option<String>,
    /// Namespaces require a user namespace.
    pub(crate) user_namespace: bool,
}

impl IsolationSupport {
    /// Probes the kernel once per process; the answer does not change while it runs.
    pub(crate) fn of(wanted: IsolationMode) -> Self {
        if wanted == IsolationMode::None { Self::default() } else { probe().clone() }
    }

    #[cfg(test)]
    pub(crate) fn at(level: IsolationLevel) -> Self {
        Self { level, ..Self::default() }
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

/// How a daemon runs the programs of its jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct SandboxConfig {
    pub(crate) support: IsolationSupport,
    /// The daemon's cache; jobs see only the parts that they run.
    pub(crate) cache: PathBuf,
    /// Files and directories to hide from jobs.
    pub(crate) hidden: Vec<PathBuf>,
    /// Programs and their directories, which jobs see read-only wherever they are.
    pub(crate) programs: Vec<PathBuf>,
    pub(crate) home: JobHome,
    /// The paths that the daemons of this user have registered.
    pub(crate) registry: DaemonRegistry,
    pub(crate) limits: AppliedLimits,
}

impl SandboxConfig {
    /// The pid by which Terraform sees a process that lives as long as the daemon. Terraform checks that the
    /// process of a provider is alive, and sees only its own PID namespace.
    pub(crate) const fn long_lived_pid(&self) -> Option<u32> {
        match self.support.level {
            // Terraform is the first process of its PID namespace.
            IsolationLevel::Full => Some(1),
            IsolationLevel::None | IsolationLevel::Directories => None,
        }
    }

    pub(crate) fn for_job<'a>(&'a self, job: &'a Path, groups: &'a JobCgroups) -> Sandbox<'a> {
        Sandbox { config: self, job, groups, writable: None }
    }
}

/// How the commands of one job are run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sandbox<'a> {
    pub(crate) config: &'a SandboxConfig,
    /// The job's directory, the only one of its kind that the job sees.
    pub(crate) job: &'a Path,
    pub(crate) groups: &'a JobCgroups,
    /// The directory of the cache that the command may write to.
    pub(crate) writable: Option<&'a Path>,
}

impl<'a> Sandbox<'a> {
    /// For a command that writes to a directory of the daemon's cache.
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
        for (level, word) in [
            (IsolationLevel::None, "none"),
            (IsolationLevel::Directories, "directories"),
            (IsolationLevel::Full, "full"),
        ] {
            assert_eq!((level.as_str(), level.to_string().as_str()), (word, word));
        }
    }

    #[test]
    fn what_the_kernel_permits_is_used_unless_it_is_not_wanted() {
        let found = IsolationSupport::of(IsolationMode::Required);
        assert_eq!(IsolationSupport::of(IsolationMode::Auto), found);
        assert_eq!(&found, probe());
        assert_eq!(IsolationSupport::of(IsolationMode::None), IsolationSupport::default());
    }

    #[test]
    fn a_provider_of_the_daemon_is_the_first_process_where_terraform_sees_no_other() {
        for (level, pid) in [
            (IsolationLevel::None, None),
            (IsolationLevel::Directories, None),
            (IsolationLevel::Full, Some(1)),
        ] {
            let support = IsolationSupport::at(level);
            let config = SandboxConfig { support, ..SandboxConfig::default() };
            assert_eq!(config.long_lived_pid(), pid, "{level}");
        }
    }

    #[test]
    fn a_command_may_write_to_the_directory_that_it_is_given() {
        let (config, groups) = (SandboxConfig::default(), JobCgroups::default());
        let sandbox = config.for_job(Path::new("/job"), &groups);
        assert_eq!((sandbox.job, sandbox.writable), (Path::new("/job"), None));
        let with = sandbox.with_writable(Path::new("/cache/downloads"));
        assert_eq!((with.job, with.writable), (Path::new("/job"), Some(Path::new("/cache/downloads"))));
    }
}
