//! The settings of a daemon, and why it may end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::connection::error::ConnectError;
use crate::files::cache_dir::CacheError;
use crate::files::file_cache;
use crate::isolation::{IsolationMode, JobLimits};
use crate::terraform::binary::TerraformSource;
use crate::terraform::install::InstallConfig;

/// Settings of a daemon.
#[derive(Debug, Clone)]
pub struct Config {
    /// For the daemon's own log; the join request tells it to the server.
    pub name: String,
    /// For the daemon's own log; the join request tells them to the server.
    pub tags: BTreeMap<String, String>,
    /// Concurrent jobs, 1 to 256.
    pub slots: usize,
    /// Run one job, then shut down as after [`Shutdown::drain`].
    pub once: bool,
    /// The daemon runs inside a server, which logs its presence: log connections at debug level only.
    pub built_in: bool,
    /// A directory for this daemon alone: plugins are cached here, and jobs run in `work` below it.
    pub cache_dir: PathBuf,
    pub terraform: TerraformSource,
    /// How to install Terraform when no available program can run a template; `None` disables it.
    pub install: Option<InstallConfig>,
    /// Interval of job heartbeats: 500 ms for an external daemon, 1 s for one inside the server (wire-protocol
    /// 5.5).
    pub update_interval: Duration,
    /// Time limit of one update with its retries, while connected.
    pub update_timeout: Duration,
    /// A job is aborted after this time without a connection. It is below the five minutes after which servers
    /// fail the job.
    pub lost_contact_after: Duration,
    /// A canceled job that does not end is aborted after this time.
    pub force_cancel_after: Duration,
    /// An interrupted Terraform is killed after this time.
    pub exit_timeout: Duration,
    /// First delay before looking for or installing Terraform again after a failure; it grows to a minute.
    pub terraform_retry: Duration,
    /// How often the daemon checks that Terraform is still there.
    pub terraform_check: Duration,
    /// First delay before a failed `init` is retried; it triples each time.
    pub init_retry: Duration,
    /// Names of variables that jobs inherit from the daemon; a trailing `*` matches any suffix. `None` passes
    /// everything but `CODER_*`. What programs need to run at all (`PATH`, `HOME`, `TMPDIR`, the locale) is
    /// always inherited.
    pub job_environment: Option<Vec<String>>,
    /// Whether jobs are isolated from the daemon and from each other (docs/isolation.md).
    pub isolation: IsolationMode,
    /// Files and directories to hide from jobs, besides those that the daemon hides by itself.
    pub hidden: Vec<PathBuf>,
    /// Paths below the daemon's home directory that jobs see read-only, besides the files that environment
    /// variables name.
    pub home: Vec<PathBuf>,
    /// Where the daemons of this user register the paths to hide from all jobs; `None` for the user's default
    /// directory.
    pub registry: Option<PathBuf>,
    /// Resource limits of a job.
    pub limits: JobLimits,
    /// Where downloaded files are cached for later jobs; daemons of one server may share it.
    pub file_cache: PathBuf,
    /// Size limit of that cache; 0 disables it.
    pub file_cache_bytes: u64,
    /// A program with the command `agent`: templates may start it on this machine with `coder_local_agent`, for as long as the
    /// daemon runs. `None` for daemons whose jobs leave nothing behind.
    pub local_agents: Option<PathBuf>,
}

impl Config {
    /// The default settings of an external daemon.
    pub fn new(name: impl Into<String>, cache_dir: impl Into<PathBuf>) -> Self {
        let cache_dir = cache_dir.into();
        Self {
            file_cache: cache_dir.join("files"),
            file_cache_bytes: file_cache::DEFAULT_BYTES,
            name: name.into(),
            tags: BTreeMap::new(),
            slots: 1,
            once: false,
            built_in: false,
            cache_dir,
            terraform: TerraformSource::SearchPath,
            install: None,
            update_interval: Duration::from_millis(500),
            update_timeout: Duration::from_secs(30),
            lost_contact_after: Duration::from_secs(240),
            force_cancel_after: Duration::from_secs(600),
            exit_timeout: Duration::from_secs(180),
            terraform_retry: Duration::from_secs(1),
            terraform_check: Duration::from_secs(30),
            init_retry: Duration::from_secs(1),
            job_environment: None,
            isolation: IsolationMode::Auto,
            hidden: Vec::new(),
            home: Vec::new(),
            registry: None,
            limits: JobLimits::default(),
            local_agents: None,
        }
    }
}

/// Why a daemon ended without being stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server permanently refuses this credential; a restart does not help.
    #[error(transparent)]
    Refused(#[from] ConnectError),
    /// This machine cannot isolate jobs, and [`IsolationMode::Required`] was requested.
    #[error("jobs cannot be isolated on this machine, but --job-isolation=required was given: {0}")]
    NotIsolated(String),
    /// Jobs of other daemons of this user cannot be kept out of this daemon's directories, and
    /// [`IsolationMode::Required`] was requested.
    #[error(
        "daemons of this user cannot be isolated from each other, but --job-isolation=required was given: {0}; remove what is there, or name a directory that only this user can write to (--daemon-registry)"
    )]
    Registry(String),
    /// The cache directory cannot be used; every job would fail.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
