//! Agents: their connections, their reports, and what others see of them.

mod access;
mod go;
mod liveness;
mod reports;
pub(crate) mod rig;
mod routes;
