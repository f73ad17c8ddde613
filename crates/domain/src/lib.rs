//! The rules of the product without I/O: what can be decided without a socket, file or database.
//!
//! Nothing here knows about HTTP, SQL or the daemon protocol; those crates depend on this one.

pub mod agent;
pub mod apps;
pub mod backoff;
pub mod build;
pub mod clock;
pub mod duration;
pub mod explain;
pub mod external_auth;
pub mod go_regex;
pub mod ids;
pub mod job;
pub mod key;
pub mod names;
pub mod parameter;
pub mod password;
pub mod protocol;
pub mod queue;
pub mod rbac;
pub mod schedule;
pub mod secret;
pub mod tags;

pub use jiff::Timestamp;
