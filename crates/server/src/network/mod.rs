//! The overlay network in the server: its relay, its coordinator, and the users connected to them (docs/network.md).
//!
//! `tailnet_service` answers the calls of agents and users, `user_connections` lists connected users so that they are
//! disconnected when their rights end, `access` says who may reach an agent, `server_node` is the server's own end.

pub mod access;
pub mod agent_api;
pub mod derp_map;
pub mod reading;
pub mod resume_token;
pub mod revoke;
pub mod server_node;
pub mod tailnet_service;
pub mod user_connections;
pub mod workspace_updates;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::secret::Secret;
use coder_store::{Error, Store};
use coder_tailnet::coordinator::hub::Hub;
use coder_tailnet::derp::Relay;
use coder_tailnet::derp::relay;
use coder_tailnet::key::NodePrivate;
use coder_tailnet::mesh::Mesh;
use tokio::sync::Notify;
use uuid::Uuid;

use self::resume_token::ResumeTokens;
use self::server_node::{NodeLimits, ServerNode};
use self::user_connections::UserConnections;
use crate::config::Config;
use crate::http::connection_limit::{ConnectionLimit, Permit};
use crate::stored_key::stored_key;

/// Names of the stored keys.
const RELAY_KEY: &str = "derp_node_key";
const RESUME_TOKEN_KEY: &str = "tailnet_resume_token_key";
const MESH_KEY: &str = "mesh_key";
/// After which time clients of a stopping relay connect again, and for how long they try.
const RECONNECT_AFTER: Duration = Duration::from_millis(500);
const RECONNECT_FOR: Duration = Duration::from_secs(60);

/// The parts of the overlay network that the server runs.
pub struct Network {
    /// Forwards packets between nodes.
    pub relay: Relay,
    /// Tells peers of each other.
    pub hub: Hub,
    /// The users that are connected to the coordinator.
    pub users: UserConnections,
    /// Reaches ports of agents.
    pub server_node: Arc<ServerNode>,
    pub(crate) resume_tokens: ResumeTokens,
    /// Connects relay and coordinator with those of other servers; none when they cannot reach this one.
    pub mesh: Option<Mesh>,
    /// Another server has connected, which may be new.
    pub(crate) mesh_joined: Notify,
    relay_limit: Arc<ConnectionLimit>,
}

impl Network {
    /// Reads the keys of the deployment, or makes them at the first start. `own` is the id of this server process.
    ///
    /// # Errors
    /// When the database fails, or a key cannot be decrypted.
    pub async fn load(store: &Store, config: &Config, own: Uuid) -> Result<Self, Error> {
        let relay_key = stored_key(store, RELAY_KEY).await?;
        let resume_key: [u8; 64] = stored_key(store, RESUME_TOKEN_KEY).await?;
        let most = relay_connections(config.tailnet.relay_connections);
        let limits = relay::Config { connections: most, ..relay::Config::default() };
        let relay = Relay::new(NodePrivate::from_bytes(relay_key), limits);
        let hub = Hub::default();
        let mesh = if store.is_postgres() && config.tailnet.relay_url.is_some() {
            let key: [u8; 32] = stored_key(store, MESH_KEY).await?;
            Some(Mesh::new(own, Secret::new(hex::encode(key)), relay.clone(), hub.clone()))
        } else {
            None
        };
        Ok(Self {
            server_node: Arc::new(ServerNode::new(relay.clone(), hub.clone(), NodeLimits::default())),
            relay,
            hub,
            users: UserConnections::new(config.tailnet.user_connections),
            resume_tokens: ResumeTokens::new(&resume_key),
            mesh,
            mesh_joined: Notify::new(),
            relay_limit: ConnectionLimit::new(most, config.proxies.clone()),
        })
    }

    /// Admits a connection to the relay, which has no authentication: some are always left for other networks.
    #[must_use]
    pub fn admit_to_relay(&self, from: IpAddr) -> Option<Permit> {
        self.relay_limit.admit(from)
    }

    /// The server stops: the clients of the relay are notified, so that they connect again at once, and their connections end.
    pub fn restart_relay(&self) {
        self.relay.restart(RECONNECT_AFTER, RECONNECT_FOR);
    }
}

/// Connections to the relay: each is an open file, as are those of daemons, agents and the database.
fn relay_connections(configured: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = files.map_or(usize::MAX, |files| usize::try_from(files / 4).unwrap_or(usize::MAX));
    configured.min(quarter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relay_has_at_most_a_quarter_of_the_open_files() {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let quarter = files.map_or(usize::MAX, |files| usize::try_from(files / 4).unwrap());
        assert_eq!(relay_connections(usize::MAX), quarter);
        assert_eq!(relay_connections(7), 7);
    }
}
