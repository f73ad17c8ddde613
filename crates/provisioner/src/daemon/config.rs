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

/// How a daemon works.
#[derive(Debug, Clone)]
pub struct Config {
    /// For its own log; the server learns it from the join request.
    pub name: String,
    /// For its own log; the server learns them from the join request.
    pub tags: BTreeMap<String, String>,
    /// Jobs at a time, 1 to 256.
    pub slots: usize,
    /// Run one job, then end as after [`crate::Shutdown::drain`].
    pub once: bool,
    /// Runs inside a server, whose own log says that it is there: connections are mentioned at debug level only.
    pub built_in: bool,
    /// Directory of its own: plugins are kept here, and jobs run in `work` below it.
    pub cache_dir: PathBuf,
    pub terraform: TerraformSource,
    /// What to do when nothing there can run a template; none for nothing.
    pub install: Option<InstallConfig>,
    /// Heartbeats of a job: 500 ms for an external daemon, 1 s for one inside the server (wire-protocol 5.5).
    pub update_interval: Duration,
    /// One update may take this long, repetitions included, while connected.
    pub update_timeout: Duration,
    /// A job is given up after this time without a connection; below the five minutes after which servers give it up.
    pub lost_contact_after: Duration,
    /// A canceled job that does not end is given up after this time.
    pub force_cancel_after: Duration,
    /// An interrupted Terraform is killed after this time.
    pub exit_timeout: Duration,
    /// Time before a program that can run jobs is looked for again, or one is installed, after none was found; it grows to
    /// a minute.
    pub terraform_retry: Duration,
    /// Time after which it is looked whether the program is still there.
    pub terraform_check: Duration,
    /// Time before a failed `init` is run again; it grows threefold each time.
    pub init_retry: Duration,
    /// Names of variables that jobs inherit from the daemon, `*` at the end for any ending; none for all but `CODER_*`.
    /// What programs need to run at all (`PATH`, `HOME`, `TMPDIR`, the locale) is always inherited.
    pub job_environment: Option<Vec<String>>,
    /// Whether jobs are kept apart from the daemon and from each other (docs/isolation.md).
    pub isolation: IsolationMode,
    /// Files and directories that no job may see, beside what the daemon itself hides.
    pub hidden: Vec<PathBuf>,
    /// What jobs see, read-only, of the daemon's home directory: paths below it. Files that the environment names are seen
    /// anyway.
    pub home: Vec<PathBuf>,
    /// Where the daemons of this user write down what their jobs must not see; none for the usual place of the user.
    pub registry: Option<PathBuf>,
    /// What a job may use of the machine.
    pub limits: JobLimits,
    /// Where files of the server are kept for later jobs; daemons of one server may share it.
    pub file_cache: PathBuf,
    /// Most bytes of such files; 0 keeps none.
    pub file_cache_bytes: u64,
}

impl Config {
    /// The settings of an external daemon.
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
        }
    }
}

/// Why a daemon ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server will never let this daemon in with this credential; starting again as it is cannot help.
    #[error(transparent)]
    Refused(#[from] ConnectError),
    /// Jobs cannot be kept apart on this machine, and [`IsolationMode::Required`] was asked for.
    #[error("jobs cannot be kept apart here, as --job-isolation=required asks for: {0}")]
    NotIsolated(String),
    /// Other daemons of this user cannot be kept from this one's directories, and [`IsolationMode::Required`] was asked for.
    #[error(
        "daemons of this user cannot be kept apart, as --job-isolation=required asks for: {0}; remove what is there, or name a directory that only this user can write to (--daemon-registry)"
    )]
    Registry(String),
    /// No job could run: the cache directory cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
}
