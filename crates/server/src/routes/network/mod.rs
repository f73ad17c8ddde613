//! The endpoints of the overlay network.

pub mod connection;
pub mod coordinate;
pub mod derp_map;
pub mod mesh;
pub mod relay;
mod upgrade;
