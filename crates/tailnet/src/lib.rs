//! The overlay network between users, server and agents: keys, relay, coordinator, and the node that carries TCP and UDP.
//!
//! All traffic is IPv6 inside a WireGuard tunnel between two peers. The tunnel's packets travel through a DERP relay; direct
//! UDP does not exist yet. `docs/network.md` explains the parts and how they are mounted.
//!
//! Decoders that fuzzers call on plain byte strings: [`derp::frame::Decoder::decode`], [`derp::upgrade::check`],
//! [`derp::DerpMap`], [`disco::Message::decode`], [`tsmp::Message::decode`], [`address::parse_prefix`],
//! [`peer::PeerConfig::from_message`].
#![warn(missing_docs)]

pub mod address;
pub mod controller;
pub mod coordinator;
pub mod derp;
pub mod disco;
pub mod key;
pub mod mesh;
pub mod node;
pub mod peer;
pub mod rpc;
pub mod tsmp;

pub use coder_wire::messages::coder::tailnet::v2 as messages;
