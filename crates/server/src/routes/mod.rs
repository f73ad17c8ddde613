//! One module per resource, one file per endpoint or small family; `router/mod.rs` is the table of contents.

pub mod announce;
pub mod applications;
pub mod audit;
pub mod builds;
pub mod connection_log;
pub mod dry_runs;
pub mod external_auth;
pub mod files;
pub mod job_logs;
pub mod jobs;
pub mod keys;
mod log_follower;
pub mod matching_daemons;
pub mod meta;
pub mod network;
pub mod organizations;
pub mod provisioner_daemons;
pub mod provisioner_jobs;
pub mod provisioner_keys;
pub mod random_name;
pub mod resources;
pub mod stored_only;
pub mod templates;
pub mod users;
pub mod versions;
pub mod workspace_agents;
pub mod workspaces;
