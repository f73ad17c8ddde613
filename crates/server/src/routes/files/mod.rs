//! Uploaded template sources.

mod archive;
mod download;
mod upload;

pub use download::download;
pub use upload::upload;
