//! Reaches relays over HTTP, with the proxies, authorities and headers of all other calls.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use coder_api::client::{Client, Dialer as HttpDialer};
use coder_api::deployment::AgentConnectionInfo;
use coder_tailnet::derp::DerpMap;
use coder_tailnet::derp::map::ServerUrl;
use coder_tailnet::derp::upgrade::{self, Form};
use coder_tailnet::node::{BoxedFuture, Dialer};
use coder_wire::bytes::BoxedStream;
use http::{HeaderMap, Uri};
use url::{Host, Url};

/// See the module.
#[derive(Debug)]
pub(crate) struct RelayDialer {
    map: DerpMap,
    http: HttpDialer,
    headers: HeaderMap,
    /// The relay is reached over WebSockets: the server asked for it, or something on the way refused the other form.
    websocket: AtomicBool,
}

impl RelayDialer {
    /// Reaches the relays of `info`.
    pub(crate) fn new(client: &Client, info: &AgentConnectionInfo) -> anyhow::Result<Self> {
        Ok(Self {
            map: super::derp_map(client, info)?,
            http: client.dialer().clone(),
            headers: client.headers().clone(),
            websocket: AtomicBool::new(info.derp_force_websockets),
        })
    }

    /// The relays.
    pub(crate) const fn map(&self) -> &DerpMap {
        &self.map
    }

    /// Connects to the relay of a region, and says in which form.
    pub(crate) async fn connect(&self, region: i64) -> io::Result<(BoxedStream, Form)> {
        let url = self.url(region)?;
        loop {
            let form = if self.websocket.load(Ordering::Relaxed) { Form::WebSocket } else { Form::Derp };
            let io = self.http.connection(&url).await.map_err(io::Error::other)?;
            let uri: Uri = url.as_str().parse().map_err(io::Error::other)?;
            match upgrade::client(io, &uri, &self.headers, form).await {
                Ok(stream) => return Ok((stream, form)),
                Err(error) if form == Form::Derp && error.wants_websocket() => {
                    tracing::debug!(%error, "the relay is tried over a WebSocket");
                    self.websocket.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    fn url(&self, region: i64) -> io::Result<Url> {
        let node = self.map.relay(region).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, format!("region {region} of the DERP map has no relay"))
        })?;
        let scheme = if node.force_http { "http" } else { "https" };
        let host = if node.host_name.contains(':') {
            format!("[{}]", node.host_name)
        } else {
            node.host_name.clone()
        };
        let port = if node.derp_port == 0 { String::new() } else { format!(":{}", node.derp_port) };
        Url::parse(&format!("{scheme}://{host}{port}/derp")).map_err(io::Error::other)
    }
}

impl Dialer for RelayDialer {
    fn dial(&self, region: i32) -> BoxedFuture<'_, io::Result<BoxedStream>> {
        Box::pin(async move { self.connect(region.into()).await.map(|(stream, _)| stream) })
    }
}

/// The server's URL, as a DERP map has it.
pub(super) fn server_url(url: &Url) -> ServerUrl {
    let host = match url.host() {
        Some(Host::Domain(name)) => name.to_owned(),
        Some(Host::Ipv4(address)) => address.to_string(),
        Some(Host::Ipv6(address)) => address.to_string(),
        None => String::new(),
    };
    let tls = url.scheme() == "https";
    ServerUrl { host, port: url.port_or_known_default().unwrap_or(443), tls }
}
