//! The provisioner daemon: joins a server, acquires jobs, runs Terraform for them, and reports the results.
//!
//! [`Daemon`] is the entry point. The caller provides the transport ([`Connector`]): a dialed WebSocket, or an
//! in-process pipe. Extensions of the official protocol are specified in `docs/extensions.md`.

mod cancel;
mod connection;
mod daemon;
#[cfg(test)]
mod decoders;
mod files;
mod isolation;
mod job;
mod local_agents;
mod metrics;
mod output;
mod terraform;

pub use coder_source::files as source_files;

pub use cancel::{Shutdown, Stop};
pub use connection::dialer::{ConnectFuture, Connector, Transport};
pub use connection::error::ConnectError;
pub use daemon::config::{Config, RunError};
pub use daemon::health::{Health, HealthProblem};
pub use daemon::status::{Status, StatusHandle};
pub use daemon::{Daemon, http};
pub use files::cache_dir::CacheError;
pub use isolation::{IsolationLevel, IsolationMode, JobLimits, protect_process};
pub use metrics::Metrics;
pub use terraform::binary::{Binary, BinaryError, Product, TerraformSource, Version};
pub use terraform::bootstrap::script as agent_script;
pub use terraform::install::{InstallConfig, MirrorError, RELEASES};
pub use terraform::resources::convert::text::{TextError, TextSource, convert_text};
pub use terraform::template::bundle::{Bundle, platform};
