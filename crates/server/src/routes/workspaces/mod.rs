//! Workspaces.

pub mod create;
pub mod find;
pub mod get;
pub mod list;
pub mod settings;
pub mod view;
