//! What requests for apps share: keys, connections to agents, and the bound on upgraded connections.

use std::sync::Arc;

use coder_store::{Error, Store};

use super::grant::Grants;
use super::sealed_key::KeySealer;
use super::transport::{self, Transport};
use crate::config::Config;
use crate::http::connection_limit::ConnectionLimit;
use crate::network::server_node::ServerNode;
use crate::stored_key::stored_key;

/// Names of the stored keys.
const GRANT_KEY: &str = "workspace_app_token_key";
const SEALING_KEY: &str = "workspace_app_api_key_key";
/// Upgraded connections of apps, such as WebSockets. One network has at most half of those that are free.
const MAX_UPGRADES: usize = 8192;

/// Shared by all requests for apps.
pub struct AppsState {
    pub(super) grants: Grants,
    pub(super) sealer: KeySealer,
    pub(super) transport: Transport,
    pub(super) upgrades: Arc<ConnectionLimit>,
}

impl AppsState {
    /// Reads the keys of the deployment, or makes them at the first start.
    ///
    /// # Errors
    /// When the database fails, or a key cannot be decrypted.
    pub async fn load(store: &Store, config: &Config, node: Arc<ServerNode>) -> Result<Self, Error> {
        Ok(Self {
            grants: Grants::new(&stored_key(store, GRANT_KEY).await?),
            sealer: KeySealer::new(&stored_key(store, SEALING_KEY).await?),
            transport: transport::new(node),
            upgrades: ConnectionLimit::new(MAX_UPGRADES, config.proxies.clone()),
        })
    }
}
