//! How an agent reaches its server and the relays.

use std::future::Future;
use std::io;
use std::pin::Pin;

use coder_api::client::{Client, Error as ClientError};
use coder_tailnet::derp::map::{Node, ServerUrl};
use coder_wire::bytes::BoxedStream;
use coder_wire::ws::Socket;

use crate::relay::RelayConnector;

/// The version of the calls that we make (agent 2.1).
const API_VERSION: &str = "2.7";

/// A future that a trait object returns.
pub type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens the connections of an agent.
pub trait Transport: Send + Sync + 'static {
    /// Opens the byte stream for calls.
    fn rpc(&self) -> BoxedFuture<'_, Result<BoxedStream, ClientError>>;

    /// Opens a connection to a relay; what follows in the stream is DERP. `is_embedded` says whether it is the relay inside the
    /// server.
    fn relay(
        &self,
        node: Node,
        is_embedded: bool,
        forces_websocket: bool,
    ) -> BoxedFuture<'_, io::Result<BoxedStream>>;

    /// The URL under which the agent reaches the server.
    fn server(&self) -> ServerUrl;
}

/// The real one.
#[derive(Debug)]
pub struct HttpTransport {
    client: Client,
    relays: RelayConnector,
}

impl HttpTransport {
    /// Reaches the server of a client whose session is the agent's token.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { relays: RelayConnector::new(client.clone()), client }
    }
}

impl Transport for HttpTransport {
    fn rpc(&self) -> BoxedFuture<'_, Result<BoxedStream, ClientError>> {
        Box::pin(async {
            let upgraded = self.client.agent_rpc(API_VERSION).await?;
            Ok(Box::new(Socket::client(upgraded.stream)) as BoxedStream)
        })
    }

    fn relay(
        &self,
        node: Node,
        is_embedded: bool,
        forces_websocket: bool,
    ) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        if forces_websocket {
            self.relays.force_websocket();
        }
        Box::pin(async move { self.relays.connect(&node, is_embedded).await.map(|(stream, _)| stream) })
    }

    fn server(&self) -> ServerUrl {
        self.relays.server()
    }
}
