//! DERP: packets between nodes that cannot reach each other, addressed by node key, over a byte stream to a relay.
//!
//! `frame` is the codec, `handshake` the exchange at the start of a connection, `client` and `relay` its two ends, `queue` what a
//! relay keeps for a receiver, `upgrade` the HTTP before it, and `map` the list of relays that peers are given.

pub mod client;
pub mod frame;
pub mod handshake;
pub mod map;
mod queue;
pub(crate) mod read;
pub mod relay;
pub mod upgrade;

pub use self::map::DerpMap;
pub use self::relay::Relay;

/// Longest packet in bytes.
pub const PACKET: usize = 64 << 10;
