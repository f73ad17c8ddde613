//! The relays of a server's DERP map.

use std::io;

use coder_agent::relay::RelayConnector;
use coder_api::client::Client;
use coder_api::deployment::AgentConnectionInfo;
use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::upgrade::Form;
use coder_tailnet::node::{BoxedFuture, Dialer};
use coder_wire::bytes::BoxedStream;

/// Dials relays.
#[derive(Debug)]
pub(crate) struct RelayDialer {
    map: DerpMap,
    connector: RelayConnector,
}

impl RelayDialer {
    /// Reaches the relays of `info`.
    pub(crate) fn new(client: &Client, info: &AgentConnectionInfo) -> anyhow::Result<Self> {
        let connector = RelayConnector::new(client.clone());
        if info.derp_force_websockets {
            connector.force_websocket();
        }
        Ok(Self { map: super::derp_map(client, info)?, connector })
    }

    /// The relays.
    pub(crate) const fn map(&self) -> &DerpMap {
        &self.map
    }

    /// Connects to the relay of a region, and says in which form.
    pub(crate) async fn connect(&self, region: i64) -> io::Result<(BoxedStream, Form)> {
        let node = self.map.relay(region).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("region {region} of the DERP map has no relay"))
        })?;
        let is_embedded = self.map.regions.get(&region).is_some_and(|region| region.embedded_relay);
        self.connector.connect(node, is_embedded).await
    }
}

impl Dialer for RelayDialer {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async move { self.connect(region.into()).await.map(|(stream, _)| stream) })
    }
}
