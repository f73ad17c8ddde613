//! The provisioner daemon: joins a server, takes jobs, runs Terraform for them, and reports.
//!
//! [`Daemon`] is everything a program needs. Where the bytes come from is the caller's business ([`Connector`]): a dialled
//! WebSocket, or a pipe inside the server's own process. What is agreed on beyond the official protocol is in
//! `docs/extensions.md`.

mod cancel;
mod connection;
mod daemon;
#[cfg(test)]
mod decoders;
mod files;
mod isolation;
mod job;
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
