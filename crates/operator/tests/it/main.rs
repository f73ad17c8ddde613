//! The operator on a real API server, with a real server and fake daemons.
#![expect(clippy::unwrap_used, reason = "tests")]

mod admission;
mod attacks;
mod charts;
mod control_plane;
mod deletion;
mod election;
mod failures;
mod gateway;
mod horizontal;
mod keda;
mod keys;
mod kubectl;
mod kubelet;
mod lives;
mod names;
mod objects;
mod official;
mod scaling;
mod server_trouble;
mod world;
