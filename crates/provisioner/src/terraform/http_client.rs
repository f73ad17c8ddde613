//! The HTTP client of the daemon's own downloads: the system's certificate authorities, the environment's
//! proxies, bounded responses.

use std::time::Duration;

use coder_api::client::{Proxies, TlsError, tls_config};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpClientError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error("the download cannot be set up: {0}")]
    Client(reqwest::Error),
}

/// A client whose requests fail when the server sends nothing for this long.
pub(crate) fn client(read_timeout: Duration) -> Result<reqwest::Client, HttpClientError> {
    let proxies = Proxies::from_env();
    let proxy = reqwest::Proxy::custom(move |url| proxies.for_url(url).cloned());
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls_config(&[])?)
        .no_proxy()
        .proxy(proxy)
        .connect_timeout(CONNECT_TIMEOUT.min(read_timeout))
        .read_timeout(read_timeout)
        .user_agent(concat!("coder/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(HttpClientError::Client)
}

/// The rest of a response; `None` when it is longer than `limit` bytes.
pub(crate) async fn body(response: &mut reqwest::Response, limit: usize) -> reqwest::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if bytes.len() + piece.len() > limit {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}
