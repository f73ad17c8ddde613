//! Agents: what they call with their own token (`me/…`), and what users see of them.

mod containers;
mod external_auth;
pub mod find;
mod follow;
mod get;
mod git_ssh_key;
mod instance_identity;
mod listening_ports;
mod logs;
mod metadata;
mod own_logs;
mod pty;
mod reinit;
mod rpc;

pub use containers::containers;
pub use external_auth::{MOST_ACCOUNT_WAITS, external_auth};
pub use get::get;
pub use git_ssh_key::git_ssh_key;
pub use instance_identity::{aws, azure, google};
pub use listening_ports::listening_ports;
pub use logs::logs;
pub use metadata::{watch_metadata, watch_metadata_ws};
pub use own_logs::{append_logs, create_log_source};
pub use pty::pty;
pub use reinit::{MOST_CLAIM_STREAMS, reinit};
pub use rpc::rpc;
