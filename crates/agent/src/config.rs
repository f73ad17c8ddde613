//! The configuration of an agent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::Clock;
use coder_domain::secret::Secret;

use crate::environment::Variables;
use crate::scripts::data_dir::DIRECTORY_NAME;
use crate::user::User;

/// Kinds of images that run the agent inside another environment.
pub use coder_wire::messages::coder::agent::v2::startup::Subsystem;

/// Settings of an agent.
#[derive(Clone)]
pub struct Config {
    /// The agent's token, for the environment of commands.
    pub token: Secret,
    /// The version that is shown for the agent, without a leading `v`.
    pub version: String,
    /// Where logs of scripts without a path of their own are written.
    pub log_dir: PathBuf,
    /// Where scripts have their directories ([`crate::script_data_dir`]).
    pub script_data_dir: PathBuf,
    /// The agent's own program, which commands use for Git.
    pub program: PathBuf,
    /// The environment of the agent itself.
    pub environment: Variables,
    /// The user that the agent runs as.
    pub user: User,
    /// What the agent runs in.
    pub subsystems: Vec<Subsystem>,
    /// How long an SSH connection may be silent.
    pub ssh_max_timeout: Duration,
    /// Whether files cannot be transferred over SSH.
    pub block_file_transfer: bool,
    /// The agent's own log, for people who look for the cause of a problem; none when it is not written to a file.
    pub log_file: Option<PathBuf>,
    /// The current time.
    pub clock: Arc<dyn Clock>,
}

impl Config {
    fn script_root(&self) -> PathBuf {
        self.script_data_dir.join(DIRECTORY_NAME)
    }

    /// The directory for programs of scripts: first in the search path of every command.
    pub(crate) fn bin_dir(&self) -> PathBuf {
        self.script_root().join("bin")
    }

    /// The directory of one script.
    pub(crate) fn data_dir(&self, log_source: uuid::Uuid) -> PathBuf {
        self.script_root().join(log_source.to_string())
    }

    /// A variable of the agent's environment.
    pub(crate) fn variable(&self, name: &str) -> Option<std::ffi::OsString> {
        if name == "HOME" {
            return Some(self.user.home.clone().into());
        }
        self.environment.get(std::ffi::OsStr::new(name)).cloned()
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The environment may hold credentials.
        f.debug_struct("Config")
            .field("version", &self.version)
            .field("log_dir", &self.log_dir)
            .field("script_data_dir", &self.script_data_dir)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) fn test_config() -> Config {
    Config {
        token: Secret::new("token"),
        version: "2.30.0".to_owned(),
        log_dir: "/nonexistent/log".into(),
        script_data_dir: "/nonexistent/data".into(),
        program: "/opt/coder".into(),
        environment: Variables::new(),
        user: User { name: "ann".to_owned(), home: "/home/ann".into(), shell: "/bin/sh".into() },
        subsystems: Vec::new(),
        ssh_max_timeout: Duration::from_secs(3600),
        block_file_transfer: false,
        log_file: None,
        clock: Arc::new(coder_domain::clock::SystemClock),
    }
}
