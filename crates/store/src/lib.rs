//! Persistence on SQLite or Postgres: one schema, one SQL text, two adapters (`docs/store.md`).
//!
//! | tables | file |
//! | --- | --- |
//! | `organizations`, `organization_members` | `accounts/organizations.rs` |
//! | `users`, `git_ssh_keys` | `accounts/users.rs` |
//! | `external_auth_links` | `accounts/external_auth_links.rs` |
//! | `api_keys` | `accounts/tokens.rs`; with user and memberships: `accounts/sessions.rs` |
//! | `provisioner_keys` | `accounts/keys.rs` |
//! | `provisioner_daemons` | `daemons/` |
//! | `files`, `file_parts` | `files.rs` |
//! | `tag_sets` | `tag_sets.rs` |
//! | `provisioner_jobs`, `queue_lines`, `queue_counts` | `jobs/` |
//! | `provisioner_job_journals` | `jobs/journals.rs` |
//! | `provisioner_job_logs` | `jobs/logs.rs`, `jobs/log_compression.rs` |
//! | `provisioner_job_timings` | `jobs/timings.rs` |
//! | `provisioner_job_uploads` | `jobs/uploads.rs` |
//! | `templates` | `templates/mod.rs` |
//! | `template_versions` and the results of an import | `templates/versions.rs`, `templates/version_details.rs` |
//! | `workspaces` | `workspaces/mod.rs`; what is due by schedule: `workspaces/schedules.rs` |
//! | `workspace_builds`, their states and parameters | `workspaces/builds.rs` |
//! | `workspace_resources`, `workspace_modules` | `workspaces/resources.rs` |
//! | `workspace_agents`, `workspace_apps` | `workspaces/agents.rs` |
//! | `workspace_agent_connections` | `workspaces/agent_connections.rs` |
//! | `workspace_agent_metadata`, `workspace_agent_script_timings` | `workspaces/agent_reports.rs` |
//! | `workspace_agent_logs`, `workspace_agent_log_sources` | `workspaces/agent_logs.rs` |
//! | `workspace_connections` | `workspaces/connection_log.rs` |
//! | `workspace_port_shares` | `workspaces/port_shares.rs` |
//! | `encryption_keys`, and the encryption of all secrets | `encryption/` |
//! | `user_quiet_hours` | `accounts/quiet_hours.rs` |
//! | `settings`, `server_secrets`, `leases`, `changes`, `replicas`, `audit_logs` | `deployment/` |
//!
//! Every function that returns a [`Result`] fails when the database fails ([`Error::Unavailable`], [`Error::DiskFull`],
//! [`Error::Refused`]) or when a stored value cannot be read ([`Error::Corrupt`]). An `# Errors` section names only
//! further errors.

mod accounts;
pub mod check;
mod config;
pub mod daemons;
mod deployment;
pub mod encryption;
mod engine;
mod error;
pub mod files;
pub mod jobs;
mod migrations;
mod statements;
mod store;
pub mod tag_sets;
pub mod templates;
#[cfg(feature = "testing")]
pub mod testing;
mod transaction;
pub mod workspaces;

pub use accounts::{external_auth_links, keys, organizations, quiet_hours, sessions, tokens, users};
pub use config::{Config, Location, UNLIMITED};
pub use deployment::{audit, changes, counts, leases, notifications, replicas, server_secrets, settings};
pub use encryption::keys::StateKeys;
pub use engine::{Document, Purpose, Statement, StatementCounts, Tx};
pub use error::{BoxError, Error, Result};
pub use statements::all as all_statements;
pub use store::Store;
#[doc(hidden)]
pub use transaction::finish_attempt;
