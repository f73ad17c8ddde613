//! The operator on a real API server, with a real server and fake daemons.
#![expect(clippy::unwrap_used, reason = "tests")]

mod admission;
mod cluster;
mod control_plane;
mod deletion;
mod election;
mod failures;
mod keys;
mod kubelet;
mod objects;
mod scaling;
mod world;
