//! Opening a WebSocket: TCP, an HTTP proxy if one applies, TLS, and the HTTP/1.1 upgrade.
//!
//! The result is the raw byte stream after the 101, for `coder-wire` or a WebSocket library to frame. The environment's
//! proxies and private authorities apply as they do to every other call.

mod spares;
mod tcp;
mod upgrade;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::secret::Secret;
use http::header::{HeaderMap, HeaderName};
use http::{Method, StatusCode};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use url::{Host, Url};

use self::spares::Spares;
use super::error::{Call, Error};
use super::{Client, secret_value};
use crate::headers;

/// A byte stream of any kind.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// A byte stream of a type that does not matter.
pub type BoxedByteStream = Box<dyn ByteStream>;

/// A connection after its upgrade; our side is the WebSocket client.
pub struct UpgradedConnection {
    /// The bytes that follow the 101's header.
    pub stream: BoxedByteStream,
    /// The 101's header.
    pub headers: HeaderMap,
}

impl fmt::Debug for UpgradedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradedConnection").finish_non_exhaustive()
    }
}

/// Opens WebSockets to one server.
#[derive(Clone)]
pub struct Dialer {
    tls: Arc<ClientConfig>,
    proxy: Option<Url>,
    connect: Duration,
    handshake: Duration,
    spares: Arc<Spares>,
}

impl Dialer {
    pub(super) fn new(
        tls: Arc<ClientConfig>,
        proxy: Option<Url>,
        connect: Duration,
        handshake: Duration,
    ) -> Self {
        Self { tls, proxy, connect, handshake, spares: Arc::default() }
    }

    /// Connects to the host of `url`, through the proxy and with TLS where they apply. Nothing is sent yet.
    ///
    /// # Errors
    /// Why there is no connection.
    pub async fn connection(&self, url: &Url) -> Result<BoxedByteStream, Error> {
        if let Some(opening) = self.spares.take(url)
            && let Ok(opened) = opening.await
        {
            return opened;
        }
        self.fresh(url).await
    }

    async fn fresh(&self, url: &Url) -> Result<BoxedByteStream, Error> {
        let call = Call::new(Method::GET, url);
        let connecting = tokio::time::timeout(self.connect, self.connect(&call, url));
        connecting.await.map_err(|_| call.timeout(self.connect, "connecting"))?
    }

    /// Connects to `url` and upgrades with `headers` added to the request.
    ///
    /// # Errors
    /// [`Error::Status`] if the response of the server, or of the proxy, is not a 101; otherwise the cause.
    pub async fn open(&self, url: &Url, headers: HeaderMap) -> Result<UpgradedConnection, Error> {
        let call = Call::new(Method::GET, url);
        let conn = self.connection(url).await?;
        let upgrading = tokio::time::timeout(self.handshake, upgrade::websocket(&call, conn, url, headers));
        upgrading.await.map_err(|_| call.timeout(self.handshake, "waiting for the upgrade"))?
    }

    async fn connect(&self, call: &Call, url: &Url) -> Result<BoxedByteStream, Error> {
        let conn = match &self.proxy {
            None => tcp::connect(url).await.map_err(|error| call.transport(error))?,
            Some(proxy) => self.connect_through_proxy(call, proxy, url).await?,
        };
        if matches!(url.scheme(), "https" | "wss") { self.start_tls(call, conn, url).await } else { Ok(conn) }
    }

    async fn connect_through_proxy(
        &self,
        call: &Call,
        proxy: &Url,
        url: &Url,
    ) -> Result<BoxedByteStream, Error> {
        let proxy_call = Call::new(Method::CONNECT, proxy);
        let mut conn = tcp::connect(proxy).await.map_err(|error| proxy_call.transport(error))?;
        if proxy.scheme() == "https" {
            conn = self.start_tls(&proxy_call, conn, proxy).await?;
        }
        upgrade::tunnel(&proxy_call, conn, proxy, url).await.map_err(|error| match error.status() {
            Some(StatusCode::PROXY_AUTHENTICATION_REQUIRED) => call.protocol(
                "the proxy requires a user and password; set HTTPS_PROXY to http://user:password@host",
            ),
            _ => error,
        })
    }

    async fn start_tls(
        &self,
        call: &Call,
        conn: BoxedByteStream,
        url: &Url,
    ) -> Result<BoxedByteStream, Error> {
        let name = match url.host() {
            Some(Host::Domain(name)) => ServerName::try_from(name.to_owned()).ok(),
            Some(Host::Ipv4(address)) => Some(ServerName::from(std::net::IpAddr::V4(address))),
            Some(Host::Ipv6(address)) => Some(ServerName::from(std::net::IpAddr::V6(address))),
            None => None,
        };
        let name = name.ok_or_else(|| call.protocol("the host is not a name that a certificate can have"))?;
        let connector = TlsConnector::from(Arc::clone(&self.tls));
        let conn = connector.connect(name, conn).await.map_err(|error| call.transport(error))?;
        Ok(Box::new(conn))
    }
}

impl Client {
    /// Opens connections as this client does.
    #[must_use]
    pub fn dialer(&self) -> &Dialer {
        &self.server.dialer
    }

    /// Starts to open connections to the server, for WebSockets that will soon be opened there. Those that nobody takes within seconds
    /// are not used.
    pub fn preconnect(&self, count: usize) {
        for _ in 0..count {
            let (dialer, url) = (self.server.dialer.clone(), self.server.base.clone());
            let opening = tokio::spawn(async move { dialer.fresh(&url).await });
            self.server.dialer.spares.put(&self.server.base, opening);
        }
    }

    /// The headers that every request has, for requests that are made by hand.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.server.headers
    }

    /// Opens a WebSocket at a path of the server, with the client's extra headers and these. No session is sent unless
    /// the headers have it.
    ///
    /// # Errors
    /// As [`Dialer::open`].
    pub async fn websocket(
        &self,
        path: &str,
        query: &[(&str, String)],
        headers: &[(&str, Secret)],
    ) -> Result<UpgradedConnection, Error> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let invalid = || Error::InvalidHeader((*name).to_owned());
            let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            map.append(parsed, secret_value(value).map_err(|()| invalid())?);
        }
        let query: Vec<_> = query.iter().map(|(key, value)| (*key, value.as_str())).collect();
        self.open(path, &query, map).await
    }

    pub(super) async fn open(
        &self,
        path: &str,
        query: &[(&str, &str)],
        mut headers: HeaderMap,
    ) -> Result<UpgradedConnection, Error> {
        for (name, value) in &self.server.headers {
            headers.append(name, value.clone());
        }
        let result = self.server.dialer.open(&self.url(path, query), headers).await;
        if let Ok(upgraded) = &result {
            self.record_headers(&upgraded.headers);
        }
        result
    }

    /// The session as a cookie, the only form the follow endpoints take from clients (http-api 10.1).
    pub(super) fn cookie(&self) -> Result<HeaderMap, Error> {
        let mut cookie = HeaderMap::new();
        if let Some(token) = &self.token {
            let pair = format!("{}={}", headers::SESSION_COOKIE, token.expose().trim());
            let value = secret_value(&Secret::new(pair)).map_err(|()| Error::InvalidToken)?;
            cookie.insert(http::header::COOKIE, value);
        }
        Ok(cookie)
    }
}

impl fmt::Debug for Dialer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialer").field("proxy", &self.proxy.is_some()).finish_non_exhaustive()
    }
}
