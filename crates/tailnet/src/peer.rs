//! Peers as the coordinator describes them, and when a node programs and forgets them. No I/O.
//!
//! An agent programs every peer at once and sends READY_FOR_HANDSHAKE. A client programs a destination only after
//! that message, or some time after the destination's node arrived: packets before that are lost, and the handshake is repeated only after 5 s.

use std::collections::HashMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use crate::address;
use crate::key::{self, DiscoPublic, NodePublic};
use crate::messages::Node as NodeMessage;
use crate::messages::coordinate_response::PeerUpdate;
use crate::messages::coordinate_response::peer_update::Kind;

/// How long a client waits for a destination to be ready.
pub const READY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a lost peer is kept after its last handshake.
pub const LOST_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// The same for a peer with open connections: a laptop may sleep for an hour.
pub const LOST_TIMEOUT_CONNECTED: Duration = Duration::from_secs(2 * 60 * 60);
/// Addresses of one peer.
const ADDRESSES: usize = 8;
/// Peers of one node.
const PEERS: usize = 10_000;

/// What a node must know of a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerConfig {
    /// Agent id, or the client's peer id.
    pub id: Uuid,
    /// WireGuard key and identity at the relay.
    pub key: NodePublic,
    /// Key of its disco protocol.
    pub disco: DiscoPublic,
    /// The region of the relay that it is connected to.
    pub region: i32,
    /// Addresses it may send from.
    pub addresses: Vec<Ipv6Addr>,
}

/// A node that must be ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NodeError {
    /// The node key.
    #[error("the peer's node key is malformed")]
    Key,
    /// The disco key is malformed or zero.
    #[error("the peer has no disco key")]
    Disco,
    /// The home region is unknown.
    #[error("the peer has no home region yet")]
    Region,
    /// The addresses.
    #[error("the peer's addresses are malformed")]
    Addresses,
}

impl PeerConfig {
    /// Reads a peer's node.
    ///
    /// # Errors
    /// [`NodeError`] when official peers ignore such a node, too.
    pub fn from_message(id: Uuid, node: &NodeMessage) -> Result<Self, NodeError> {
        let key = NodePublic::from_binary(&node.key).map_err(|key::ParseError { .. }| NodeError::Key)?;
        let disco: DiscoPublic = node.disco.parse().map_err(|key::ParseError { .. }| NodeError::Disco)?;
        if key.is_zero() {
            return Err(NodeError::Key);
        }
        if disco.is_zero() {
            return Err(NodeError::Disco);
        }
        if node.preferred_derp <= 0 {
            return Err(NodeError::Region);
        }
        if node.allowed_ips.len() > ADDRESSES {
            return Err(NodeError::Addresses);
        }
        let addresses = node.allowed_ips.iter().map(|text| address::parse_prefix(text));
        let addresses: Vec<_> =
            addresses.collect::<Result<_, address::PrefixError>>().map_err(|_| NodeError::Addresses)?;
        Ok(Self { id, key, disco, region: node.preferred_derp, addresses })
    }
}

/// Whose peers they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Accepts every peer that the coordinator names.
    Agent,
    /// Accepts only its destinations.
    Client,
}

/// What the node must do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Program the peer, or its new values.
    Set(PeerConfig),
    /// Forget the peer and its connections.
    Remove(Uuid),
    /// Tell the coordinator that this peer may begin a handshake.
    ReadyForHandshake(Uuid),
}

/// What the node knows of a programmed peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Activity {
    /// When the last handshake ended.
    pub last_handshake: Option<Instant>,
    /// Connections now.
    pub connections: usize,
}

#[derive(Debug, Default)]
struct Entry {
    /// Its newest node that may be used.
    node: Option<PeerConfig>,
    /// The node that it was programmed with last.
    programmed: Option<PeerConfig>,
    /// It is ready for its newest node.
    ready: bool,
    /// When it is programmed although it did not say that it is ready.
    ready_at: Option<Instant>,
    /// Since when the coordinator does not know it.
    lost_at: Option<Instant>,
}

/// The peers of one node. They outlive the connection to the coordinator.
#[derive(Debug)]
pub struct Peers {
    role: Role,
    entries: HashMap<Uuid, Entry>,
}

impl Peers {
    /// No peers yet.
    #[must_use]
    pub fn new(role: Role) -> Self {
        Self { role, entries: HashMap::new() }
    }

    /// Which end of connections this is.
    pub const fn role(&self) -> Role {
        self.role
    }

    /// A client wants to reach this agent.
    pub fn add_destination(&mut self, id: Uuid) {
        self.entries.entry(id).or_default();
    }

    /// A client does not want to reach this agent any more.
    pub fn remove_destination(&mut self, id: Uuid) -> Option<Action> {
        self.entries.remove(&id).filter(|entry| entry.programmed.is_some()).map(|_| Action::Remove(id))
    }

    /// The destinations of a client. An agent has none: it opens no tunnel to those who reach it.
    pub fn destinations(&self) -> impl Iterator<Item = Uuid> {
        self.entries.keys().copied().filter(|_| self.role == Role::Client)
    }

    /// Takes a message of the coordinator about one peer.
    pub fn update(&mut self, now: Instant, update: &PeerUpdate) -> Vec<Action> {
        let Ok(id) = Uuid::from_slice(&update.id) else { return Vec::new() };
        let may_add = self.role == Role::Agent && self.entries.len() < PEERS;
        match update.kind() {
            Kind::Node => {
                let Some(node) = &update.node else { return Vec::new() };
                let config = match PeerConfig::from_message(id, node) {
                    Ok(config) => config,
                    Err(error) => {
                        tracing::debug!(peer_id = %id, %error, "the node of a peer is ignored");
                        return Vec::new();
                    }
                };
                if may_add {
                    self.entries.entry(id).or_default();
                }
                self.entries.get_mut(&id).map(|entry| entry.node(self.role, now, config)).unwrap_or_default()
            }
            Kind::ReadyForHandshake => match self.entries.get_mut(&id) {
                Some(entry) if self.role == Role::Client => {
                    entry.ready = true;
                    entry.ready_at = None;
                    entry.program().into_iter().collect()
                }
                _ => Vec::new(),
            },
            Kind::Disconnected => {
                let Some(entry) = self.entries.get_mut(&id) else { return Vec::new() };
                let was_programmed = entry.programmed.is_some();
                if self.role == Role::Client {
                    // It is still wanted: it may come back.
                    *entry = Entry::default();
                } else {
                    self.entries.remove(&id);
                }
                was_programmed.then_some(Action::Remove(id)).into_iter().collect()
            }
            Kind::Lost => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.lose(now);
                }
                Vec::new()
            }
            Kind::Unspecified => Vec::new(),
        }
    }

    /// The connection to the coordinator ended.
    pub fn lose_all(&mut self, now: Instant) {
        for entry in self.entries.values_mut() {
            entry.lose(now);
        }
    }

    /// Programs and forgets what is due.
    pub fn tick(&mut self, now: Instant, activity: impl Fn(Uuid) -> Activity) -> Vec<Action> {
        let mut actions = Vec::new();
        for entry in self.entries.values_mut() {
            if entry.ready_at.is_some_and(|at| at <= now) {
                entry.ready = true;
                entry.ready_at = None;
                actions.extend(entry.program());
            }
        }
        let over = |(id, entry): (&Uuid, &Entry)| {
            entry.expires_at(activity(*id)).is_some_and(|at| at <= now).then_some(*id)
        };
        let over: Vec<_> = self.entries.iter().filter_map(over).collect();
        for id in over {
            if self.role == Role::Client {
                self.entries.insert(id, Entry::default());
            } else {
                self.entries.remove(&id);
            }
            actions.push(Action::Remove(id));
        }
        actions
    }

    /// When [`Self::tick`] must be called next.
    pub fn next_tick(&self, activity: impl Fn(Uuid) -> Activity) -> Option<Instant> {
        let of = |(id, entry): (&Uuid, &Entry)| {
            entry.ready_at.into_iter().chain(entry.expires_at(activity(*id))).min()
        };
        self.entries.iter().filter_map(of).min()
    }
}

impl Entry {
    fn node(&mut self, role: Role, now: Instant, config: PeerConfig) -> Vec<Action> {
        let id = config.id;
        let has_key = |node: &Option<PeerConfig>| node.as_ref().is_some_and(|node| node.key == config.key);
        if self.node.is_some() && !has_key(&self.node) {
            // It was restarted: READY_FOR_HANDSHAKE was sent by the process before.
            self.ready = false;
        }
        self.ready |= role == Role::Agent || has_key(&self.programmed);
        self.lost_at = None;
        let changed = self.node.as_ref() != Some(&config);
        self.node = Some(config);
        if !self.ready && (changed || self.ready_at.is_none()) {
            self.ready_at = Some(now + READY_TIMEOUT);
        }
        let ready = (role == Role::Agent).then_some(Action::ReadyForHandshake(id));
        self.program().into_iter().chain(ready).collect()
    }

    /// The peer, if it is ready and not programmed with its newest node.
    fn program(&mut self) -> Option<Action> {
        let node = self.node.as_ref().filter(|node| self.ready && self.programmed.as_ref() != Some(node))?;
        self.programmed = Some(node.clone());
        self.ready_at = None;
        Some(Action::Set(node.clone()))
    }

    fn lose(&mut self, now: Instant) {
        self.ready_at = None;
        if self.programmed.is_some() {
            self.lost_at.get_or_insert(now);
        } else {
            *self = Self::default();
        }
    }

    fn expires_at(&self, activity: Activity) -> Option<Instant> {
        let lost_at = self.lost_at?;
        let timeout = if activity.connections > 0 { LOST_TIMEOUT_CONNECTED } else { LOST_TIMEOUT };
        // A peer without a handshake has none to wait for, but the coordinator may only have restarted.
        Some(activity.last_handshake.unwrap_or(lost_at) + timeout).map(|at| at.max(lost_at))
    }
}
