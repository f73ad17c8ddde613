//! Uploaded template sources.

mod archive;
mod download;
pub mod find;
mod upload;

pub use download::download;
pub use upload::upload;
