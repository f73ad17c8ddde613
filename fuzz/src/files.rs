//! The daemon's reader of archives.

#[path = "../../crates/provisioner/src/files/archive.rs"]
pub(crate) mod archive;
