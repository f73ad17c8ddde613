//! How an agent reaches its server and the relays.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};

use coder_api::client::{Client, Error as ClientError};
use coder_tailnet::derp::map::{Node, ServerUrl};
use coder_tailnet::derp::upgrade::{self, Form};
use coder_wire::bytes::BoxedStream;
use coder_wire::ws::Socket;
use http::HeaderMap;
use url::Url;

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
    /// A relay refused the first form of the upgrade.
    uses_websocket: AtomicBool,
}

impl HttpTransport {
    /// Reaches the server of a client whose session is the agent's token.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, uses_websocket: AtomicBool::new(false) }
    }

    async fn dial_relay(&self, node: Node, is_embedded: bool, form: Form) -> io::Result<BoxedStream> {
        let url = relay_url(&node).map_err(io::Error::other)?;
        let (stream, headers) = self.client.connect(&url).await.map_err(io::Error::other)?;
        // Further headers may be credentials for the way to the server; other relays do not get them.
        let headers = if is_embedded { headers } else { HeaderMap::new() };
        let uri = url.as_str().parse().map_err(io::Error::other)?;
        upgrade::client(stream, &uri, &headers, form).await.map_err(|error| {
            if error.wants_websocket() && form == Form::Derp {
                tracing::debug!(%error, "the relay is tried with a WebSocket from now on");
                self.uses_websocket.store(true, Ordering::Relaxed);
            }
            io::Error::other(error)
        })
    }
}

fn relay_url(node: &Node) -> Result<Url, url::ParseError> {
    let scheme = if node.force_http { "http" } else { "https" };
    let host =
        if node.host_name.contains(':') { format!("[{}]", node.host_name) } else { node.host_name.clone() };
    let port = u16::try_from(node.derp_port).ok().filter(|port| *port > 0);
    let port = port.unwrap_or(if node.force_http { 80 } else { 443 });
    Url::parse(&format!("{scheme}://{host}:{port}/derp"))
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
        let websocket = forces_websocket || self.uses_websocket.load(Ordering::Relaxed);
        let form = if websocket { Form::WebSocket } else { Form::Derp };
        Box::pin(self.dial_relay(node, is_embedded, form))
    }

    fn server(&self) -> ServerUrl {
        let base = self.client.base();
        ServerUrl {
            host: base.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: base.port_or_known_default().unwrap_or(443),
            tls: base.scheme() == "https",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_relays() {
        let check = |host: &str, port, force_http, want: &str| {
            let node = Node { host_name: host.to_owned(), derp_port: port, force_http, ..Node::default() };
            assert_eq!(relay_url(&node).unwrap().as_str(), want);
        };
        check("coder.example.com", 0, false, "https://coder.example.com/derp");
        check("127.0.0.1", 3000, true, "http://127.0.0.1:3000/derp");
        check("::1", 8443, false, "https://[::1]:8443/derp");
    }
}
