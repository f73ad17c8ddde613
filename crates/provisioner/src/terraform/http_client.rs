//! What the daemon itself fetches: with the system's certificate authorities and the environment's proxies, and bounded.

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

/// A client that gives up a server that says nothing for this long.
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

/// The rest of an answer; none when it is longer than `limit` bytes.
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
