//! Agents: their connections, their reports, and what others see of them.

mod access;
mod apps;
mod connections;
mod go;
mod liveness;
mod overlay;
mod reports;
pub(crate) mod rig;
mod routes;
mod terminal;
mod watch;
