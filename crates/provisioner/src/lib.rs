//! The provisioner daemon: joins a server, takes jobs, runs Terraform for them, and reports.
//!
//! [`Daemon`] is everything a program needs. Where the bytes come from is the caller's business ([`Connector`]): a dialled
//! WebSocket, or a pipe inside the server's own process.

mod archive;
mod cancel;
mod daemon;
mod job;
mod join;
mod logs;
mod session;
mod status;
mod strays;
mod terraform;
mod workdir;

pub use cancel::{Shutdown, Stop};
pub use daemon::{Config, Connecting, Connector, Daemon, RunError};
pub use join::ConnectError;
pub use status::{Status, StatusHandle};
pub use terraform::binary::{Binary, BinaryError, TerraformSource, Version};
pub use terraform::bootstrap::script as agent_script;
