//! Prometheus metrics: official names where this server has the same thing (scheduling-and-auth 6.2), and our own
//! (docs/operators/monitoring.md lists them).
//!
//! Counters are updated as things happen. Numbers from the database are read at each scrape. Labels that clients can choose
//! are bounded: tag sets by [`counters::MAX_TAG_SETS`], paths by the route table.

pub mod counters;
mod network;
mod scrape;
mod serve;
mod sockets;
mod workspaces;

pub use self::scrape::render;
pub use self::serve::service;
