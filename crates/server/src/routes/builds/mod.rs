//! Workspace builds.

pub mod cancel;
pub mod content;
pub mod create;
pub mod find;
pub mod get;
pub mod insert;
pub mod list;
pub mod parameters;
pub mod source;
pub mod state;
pub mod tags;
pub mod view;
