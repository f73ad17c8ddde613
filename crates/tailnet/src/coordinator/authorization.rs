//! What a peer may do at the coordinator. The server chooses the kind when it accepts a connection.

use std::fmt;
use std::sync::Arc;

use coder_wire::messages::coder::tailnet::v2::Node;
use prost::Message as _;
use uuid::Uuid;

use crate::address::{self, LEGACY_AGENT};

/// Bounds of a node: its partners receive it as it is.
const ADDRESSES: usize = 8;
const ENDPOINTS: usize = 256;
const LATENCIES: usize = 1024;
const TEXT: usize = 512;
/// Bytes of the whole node. One of an official peer has about a thousand.
const NODE: usize = 16 << 10;

/// The kinds of peers.
#[derive(Clone)]
pub enum Authorization {
    /// An agent: opens no tunnel, and announces only the addresses of its own id.
    Agent(Uuid),
    /// A user's connection for one agent.
    Client(Uuid),
    /// A user's connection for every agent that the function allows.
    ClientOf(Arc<dyn Fn(Uuid) -> bool + Send + Sync>),
    /// The server's own node.
    Server,
    /// A peer of another server of the deployment, which has authorized what it does.
    OtherServer,
}

impl fmt::Debug for Authorization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(id) => f.debug_tuple("Agent").field(id).finish(),
            Self::Client(agent) => f.debug_tuple("Client").field(agent).finish(),
            Self::ClientOf(_) => f.write_str("ClientOf"),
            Self::Server => f.write_str("Server"),
            Self::OtherServer => f.write_str("OtherServer"),
        }
    }
}

/// A request that ends the connection. Official peers look for the beginning of the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// An id that is not a UUID.
    #[error("authorization: a peer id has 16 bytes")]
    Id,
    /// A tunnel.
    #[error("authorization: a tunnel to {0} is not allowed")]
    Tunnel(Uuid),
    /// Too many tunnels.
    #[error("authorization: more than {0} tunnels are not allowed")]
    TooManyTunnels(usize),
    /// An address.
    #[error(
        "authorization: the address {0:?} is not allowed; a node announces addresses of its own with a prefix of 128 bits"
    )]
    Address(String),
    /// A node over the bounds.
    #[error("authorization: the node is too large")]
    NodeTooLarge,
    /// Ready for a handshake.
    #[error("authorization: only agents announce that they are ready for a handshake")]
    Ready,
}

impl Authorization {
    /// Whether the peer is connected to this server.
    pub(super) const fn is_here(&self) -> bool {
        !matches!(self, Self::OtherServer)
    }

    /// Whether it may open any number of tunnels: the number is bounded elsewhere.
    pub(super) const fn is_unlimited(&self) -> bool {
        matches!(self, Self::Server | Self::OtherServer)
    }

    pub(super) fn check_tunnel(&self, to: Uuid) -> Result<(), Denied> {
        let may = match self {
            Self::Agent(_) => false,
            Self::Client(agent) => *agent == to,
            Self::ClientOf(allows) => allows(to),
            Self::Server | Self::OtherServer => true,
        };
        if may { Ok(()) } else { Err(Denied::Tunnel(to)) }
    }

    pub(super) fn check_ready(&self) -> Result<(), Denied> {
        if matches!(self, Self::Agent(_) | Self::OtherServer) { Ok(()) } else { Err(Denied::Ready) }
    }

    pub(super) fn check_node(&self, node: &Node) -> Result<(), Denied> {
        let long = |texts: &[String]| texts.iter().any(|text| text.len() > TEXT);
        if node.encoded_len() > NODE
            || node.addresses.len() > ADDRESSES
            || node.allowed_ips.len() > ADDRESSES
            || node.endpoints.len() > ENDPOINTS
            || node.derp_latency.len() > LATENCIES
            || node.derp_forced_websocket.len() > LATENCIES
            || node.key.len() > TEXT
            || node.disco.len() > TEXT
            || long(&node.addresses)
            || long(&node.allowed_ips)
            || long(&node.endpoints)
            || node.derp_latency.keys().any(|key| key.len() > TEXT)
            || node.derp_forced_websocket.values().any(|value| value.len() > TEXT)
        {
            return Err(Denied::NodeTooLarge);
        }
        for text in node.addresses.iter().chain(&node.allowed_ips) {
            let denied = || Denied::Address(text.clone());
            let address = address::parse_prefix(text).map_err(|_| denied())?;
            if let Self::Agent(id) = self
                && !address::of_agent(*id).contains(&address)
                && address != LEGACY_AGENT
            {
                return Err(denied());
            }
        }
        Ok(())
    }
}
