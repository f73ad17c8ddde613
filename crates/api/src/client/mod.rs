//! The HTTP client of the command line, the daemon and everything else that talks to a server.
//!
//! A [`Client`] has one server and at most one session. It does not follow redirects and reads responses up to a limit.
//! No error or `Debug` text contains a credential.

mod administration;
mod agents;
mod daemons;
pub mod dial;
mod error;
mod files;
mod logs;
mod organizations;
mod proxy;
mod reinit;
mod request;
mod templates;
mod tls;
mod users;
mod version;
mod workspace_agent;
mod workspaces;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use coder_domain::secret::Secret;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

pub use daemons::{Credential, DaemonFilter, JobFilter, ServeProvisionerDaemonRequest};
pub use dial::{BoxedByteStream, ByteStream, Dialer, UpgradedConnection};
pub use error::{Error, ErrorResponse, refused_certificate};
pub use files::Download;
pub use logs::{AgentLogs, FollowedLog, JobLogTarget, JobLogs, LogLine};
pub use proxy::Proxies;
pub use reinit::Reinit;
pub use tls::{Error as TlsError, config as tls_config};
pub use version::same_release;
pub use workspace_agent::{AppProbe, ExternalAuthQuery};

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Reaching the server: name look-up, TCP, proxy and TLS.
    pub connect: Duration,
    /// A whole call with a small body.
    pub request: Duration,
    /// A whole upload, and the longest silence in a download.
    pub transfer: Duration,
    /// The answer to a WebSocket upgrade.
    pub handshake: Duration,
    /// The longest silence of a followed log; servers ping every 15 s (http-api 10.1).
    pub log_silence: Duration,
    /// How long a followed log tries to come back after its connection was lost.
    pub log_reconnect: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            request: Duration::from_secs(60),
            transfer: Duration::from_secs(600),
            handshake: Duration::from_secs(30),
            log_silence: Duration::from_secs(60),
            log_reconnect: Duration::from_secs(120),
        }
    }
}

/// Settings of a [`Client`]. The default takes the proxies from the environment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sent as `User-Agent`.
    pub user_agent: String,
    /// Sent with every request, WebSockets included. The values may be credentials.
    pub headers: Vec<(String, Secret)>,
    /// PEM files with further certificate authorities, besides the system's, `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    pub ca_files: Vec<PathBuf>,
    /// Which proxy to use.
    pub proxies: Proxies,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How often a GET is repeated after a transient failure.
    pub retries: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            user_agent: concat!("coder/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: Vec::new(),
            ca_files: Vec::new(),
            proxies: Proxies::from_env(),
            timeouts: Timeouts::default(),
            retries: 2,
        }
    }
}

/// A server, and a session with it if there is a token. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    server: Arc<Server>,
    token: Option<Secret>,
}

struct Server {
    base: Url,
    http: reqwest::Client,
    dialer: Dialer,
    /// The extra headers and the user agent, for requests that do not go through `http`.
    headers: HeaderMap,
    timeouts: Timeouts,
    retries: u32,
    version: OnceLock<String>,
    warnings: Mutex<Vec<String>>,
}

/// Most warnings of a server that are kept, and the longest in characters.
const WARNINGS: (usize, usize) = (32, 512);

impl Client {
    /// A client of the server at `url`, whose path, query and user are dropped as the official client drops them
    /// (http-api 1.1). It opens no connection.
    ///
    /// # Errors
    /// The URL is not an HTTP one, a header is malformed, or a certificate file cannot be read.
    pub fn new(url: &str, token: Option<Secret>, options: Options) -> Result<Self, Error> {
        let base = parse_base(url)?;
        let headers = parse_headers(&options)?;
        let proxy = options.proxies.for_url(&base).cloned();
        if proxy.as_ref().is_some_and(|proxy| !matches!(proxy.scheme(), "http" | "https")) {
            return Err(Error::InvalidProxy);
        }
        let secure =
            base.scheme() == "https" || proxy.as_ref().is_some_and(|proxy| proxy.scheme() == "https");
        let tls = if secure { tls::config(&options.ca_files)? } else { tls::without_roots() };
        let mut http = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::with_http2(tls.clone()))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(options.timeouts.connect)
            .default_headers(headers.clone())
            .no_proxy();
        if let Some(proxy) = &proxy {
            let proxy = reqwest::Proxy::all(proxy.as_str()).map_err(|_| Error::InvalidProxy)?;
            http = http.proxy(proxy);
        }
        let http = http.build().map_err(|source| Error::Setup(source.without_url()))?;
        let dialer = Dialer::new(Arc::new(tls), proxy, options.timeouts.connect, options.timeouts.handshake);
        let server = Server {
            base,
            http,
            dialer,
            headers,
            timeouts: options.timeouts,
            retries: options.retries,
            version: OnceLock::new(),
            warnings: Mutex::default(),
        };
        Ok(Self { server: Arc::new(server), token })
    }

    /// The same server with another session; connections are shared.
    #[must_use]
    pub fn with_token(&self, token: Option<Secret>) -> Self {
        Self { server: Arc::clone(&self.server), token }
    }

    /// The session token.
    #[must_use]
    pub const fn token(&self) -> Option<&Secret> {
        self.token.as_ref()
    }

    /// The server's address, without path and credentials.
    #[must_use]
    pub fn base(&self) -> &Url {
        &self.server.base
    }

    /// The build version the server reported in its first answer, for [`same_release`] (http-api 1.8).
    #[must_use]
    pub fn server_version(&self) -> Option<&str> {
        self.server.version.get().map(String::as_str)
    }

    /// The warnings of the server's responses so far, each once.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.server.warnings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record_headers(&self, headers: &HeaderMap) {
        self.keep_warnings(headers);
        let version = headers.get(crate::headers::BUILD_VERSION).and_then(|value| value.to_str().ok());
        if let Some(version) = version {
            self.server.version.get_or_init(|| version.chars().take(128).collect());
        }
    }

    fn keep_warnings(&self, headers: &HeaderMap) {
        let sent = headers.get_all(crate::headers::FEATURE_WARNING).iter();
        let mut kept = self.server.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        for text in sent.filter_map(|value| value.to_str().ok()) {
            let text: String = text.chars().take(WARNINGS.1).collect();
            if kept.len() < WARNINGS.0 && !text.is_empty() && !kept.contains(&text) {
                kept.push(text);
            }
        }
    }

    fn url(&self, path: &str, query: &[(&str, &str)]) -> Url {
        let mut url = self.server.base.clone();
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("server", &self.server.base.as_str())
            .field("session", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

fn parse_base(text: &str) -> Result<Url, Error> {
    let mut url = Url::parse(text.trim()).map_err(|source| Error::InvalidUrl(source.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(Error::InvalidUrl("not an address of the form https://host".to_owned()));
    }
    // These cannot fail for a URL with a host.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_path("/");
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

fn parse_headers(options: &Options) -> Result<HeaderMap, Error> {
    let mut headers = HeaderMap::new();
    let agent = HeaderValue::from_str(&options.user_agent);
    headers
        .insert(http::header::USER_AGENT, agent.map_err(|_| Error::InvalidHeader("User-Agent".to_owned()))?);
    for (name, value) in &options.headers {
        let invalid = || Error::InvalidHeader(name.clone());
        let parsed = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| invalid())?;
        headers.append(parsed, secret_value(value).map_err(|()| invalid())?);
    }
    Ok(headers)
}

/// A header value that `Debug` does not show.
fn secret_value(secret: &Secret) -> Result<HeaderValue, ()> {
    let mut value = HeaderValue::from_str(secret.expose().trim()).map_err(|_| ())?;
    value.set_sensitive(true);
    Ok(value)
}
