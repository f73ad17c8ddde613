//! Workspaces.

pub mod create;
pub mod find;
pub mod get;
pub mod latest_agents;
pub mod list;
pub mod port_shares;
pub mod schedule;
pub mod settings;
pub mod usage;
pub mod view;
pub mod watch;
