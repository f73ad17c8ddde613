//! How the peers of users and of workspaces reach relays over HTTP: with the proxies and authorities of all other calls.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use coder_api::client::Client;
use coder_tailnet::derp::map::{Node, ServerUrl};
use coder_tailnet::derp::upgrade::{self, Form};
use coder_wire::bytes::BoxedStream;
use http::{HeaderMap, Uri};
use url::Url;

/// Connects to relays.
#[derive(Debug)]
pub struct RelayConnector {
    client: Client,
    /// The server asked for it, or something on the way refused the other form.
    uses_websocket: AtomicBool,
}

impl RelayConnector {
    /// Connects as a client does.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client, uses_websocket: AtomicBool::new(false) }
    }

    /// From now on relays are reached over WebSockets.
    pub fn force_websocket(&self) {
        self.uses_websocket.store(true, Ordering::Relaxed);
    }

    /// Connects to a relay, and says in which form; what follows in the stream is DERP. `is_embedded` says whether it is the relay
    /// inside the server.
    ///
    /// # Errors
    /// The relay cannot be reached, or refuses both forms.
    pub async fn connect(&self, node: &Node, is_embedded: bool) -> io::Result<(BoxedStream, Form)> {
        let url = relay_url(node).map_err(io::Error::other)?;
        let uri: Uri = url.as_str().parse().map_err(io::Error::other)?;
        loop {
            let form = if self.uses_websocket.load(Ordering::Relaxed) { Form::WebSocket } else { Form::Derp };
            let (stream, headers) = self.client.connect(&url).await.map_err(io::Error::other)?;
            // Further headers may be credentials for the way to the server; other relays do not get them.
            let headers = if is_embedded { headers } else { HeaderMap::new() };
            match upgrade::client(stream, &uri, &headers, form).await {
                Ok(stream) => return Ok((stream, form)),
                Err(error) if form == Form::Derp && error.wants_websocket() => {
                    tracing::debug!(%error, "the relay is tried over a WebSocket");
                    self.force_websocket();
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// The URL of the server, as DERP maps have it.
    #[must_use]
    pub fn server(&self) -> ServerUrl {
        server_url(self.client.base())
    }
}

/// The URL of a server, as DERP maps have it.
#[must_use]
pub fn server_url(url: &Url) -> ServerUrl {
    ServerUrl {
        host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
        port: url.port_or_known_default().unwrap_or(443),
        tls: url.scheme() == "https",
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

    #[test]
    fn urls_of_servers() {
        let check = |url: &str, host: &str, port, tls| {
            let server = server_url(&Url::parse(url).unwrap());
            assert_eq!((server.host.as_str(), server.port, server.tls), (host, port, tls), "{url}");
        };
        check("https://coder.example.com", "coder.example.com", 443, true);
        check("http://[::1]:3000/", "::1", 3000, false);
    }
}
