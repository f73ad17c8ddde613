//! The HTTP contract: what requests and answers look like, where they go, and (feature `client`) who sends them.
//!
//! Types follow http-api section 11 field by field. Three rules hold everywhere: a list we send is never `null`, a `null`
//! we receive reads as the empty value, and a word we do not know is kept instead of refused.

#[macro_use]
mod string_enum;

pub mod audit;
pub mod builds;
#[cfg(feature = "client")]
pub mod client;
pub mod daemons;
pub mod deployment;
pub mod error;
pub mod explanations;
pub mod external_auth;
pub mod files;
pub mod headers;
pub mod health;
pub mod jobs;
pub mod json;
pub mod keys;
pub mod organizations;
pub mod paths;
pub mod resources;
pub mod templates;
pub mod tokens;
pub mod users;
pub mod versions;
pub mod workspaces;

pub use coder_domain::Timestamp;
