//! The HTTP contract: the types of requests and responses, the URL paths, and (feature `client`) the HTTP client.
//!
//! Types follow http-api section 11 field by field. Three rules hold everywhere: a list that we send is never `null`, a
//! `null` that we receive is read as the empty value, and an unknown enum value is kept instead of refused.

#[macro_use]
mod string_enum;

pub mod agents;
pub mod audit;
pub mod builds;
#[cfg(feature = "client")]
pub mod client;
pub mod connection_log;
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
