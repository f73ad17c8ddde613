//! What the server counts and tells Prometheus: official names where what they mean exists here (scheduling-and-auth 6.2),
//! and ours, which begin with `coderd_provisioning_` (docs/operators/monitoring.md lists them).
//!
//! Counters are kept as things happen; what the database knows is read when somebody scrapes, so nothing is done in
//! between. Labels that others can choose are bounded: tag sets by [`counters::SETS`], paths are those of the route table.

pub mod counters;
mod scrape;
mod serve;
mod sockets;
mod workspaces;

pub use self::scrape::render;
pub use self::serve::service;
