//! Accounts: the first user, log-in, and the management of others.

pub mod create;
pub mod delete;
pub mod find;
pub mod first;
pub mod get;
pub mod git_ssh_key;
pub mod list;
pub mod login;
pub mod organizations;
pub mod password;
pub mod permissions;
pub mod profile;
pub mod quiet_hours;
pub mod roles;
pub mod status;
pub mod takeover;
pub mod view;
