//! Templates.

pub mod access;
pub mod activate;
pub mod create;
pub mod delete;
pub mod find;
pub mod get;
pub mod list;
pub mod settings;
pub mod update;
pub mod view;
