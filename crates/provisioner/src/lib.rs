//! The provisioner daemon: joins a server, takes jobs, runs Terraform for them, and reports.
//!
//! [`Daemon`] is everything a program needs. Where the bytes come from is the caller's business ([`Connector`]): a dialled
//! WebSocket, or a pipe inside the server's own process. What is agreed on beyond the official protocol is in
//! `docs/extensions.md`.

mod acquire;
mod archive;
mod cache_dir;
mod cancel;
mod connect;
mod daemon;
#[cfg(test)]
mod decoders;
mod hand;
mod health;
pub mod http;
mod isolation;
mod job;
mod job_files;
mod join;
mod kept_files;
mod left;
mod logs;
mod mask;
mod metrics;
mod neighbours;
mod notifications;
mod older;
mod program;
mod protect;
mod reports;
mod rows;
mod session;
mod singly;
mod start_failure;
mod status;
mod strays;
mod terraform;
mod unescape;
mod workdir;

pub use coder_source::files as source_files;

pub use cache_dir::CacheError;
pub use cancel::{Shutdown, Stop};
pub use connect::{ConnectFuture, Connector, Transport};
pub use daemon::{Config, Daemon, RunError};
pub use health::{Health, HealthProblem};
pub use isolation::{IsolationLevel, IsolationMode, JobLimits};
pub use join::ConnectError;
pub use metrics::Metrics;
pub use protect::protect_process;
pub use status::{Status, StatusHandle};
pub use terraform::binary::{Binary, BinaryError, Product, TerraformSource, Version};
pub use terraform::bootstrap::script as agent_script;
pub use terraform::bundle::{Bundle, platform};
pub use terraform::convert::text::{TextError, TextSource, convert_text};
pub use terraform::install::{InstallConfig, MirrorError, RELEASES};
