//! Template versions and what their imports found.

pub mod archive;
pub mod cancel;
pub mod content;
pub mod create;
pub mod find;
pub mod get;
pub mod list;
pub mod tags;
pub mod update;
pub mod view;
