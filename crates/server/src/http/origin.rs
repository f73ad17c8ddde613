//! The identity of a request: its id, its client, and whether it came over TLS.

use std::convert::Infallible;
use std::net::IpAddr;

use axum::extract::FromRequestParts;
use http::request::Parts;
use http::{Extensions, HeaderMap, header};
use uuid::Uuid;

use super::peer::Peer;

/// The id of a request, in its log lines and its response.
#[derive(Debug, Clone, Copy)]
pub struct RequestId(pub Uuid);

/// Marks requests that came over TLS.
#[derive(Debug, Clone, Copy)]
pub struct Encrypted;

/// Longest `User-Agent` that is kept, in characters.
const AGENT_CHARACTERS: usize = 256;

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The id of the request.
    pub request: Uuid,
    /// The client address; `None` outside of requests.
    pub address: Option<IpAddr>,
    /// The `User-Agent` header.
    pub user_agent: String,
}

impl Origin {
    /// Reads the extensions that the outermost layer inserted.
    #[must_use]
    pub fn of(extensions: &Extensions, headers: &HeaderMap) -> Self {
        let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        Self {
            request: extensions.get::<RequestId>().map_or_else(Uuid::nil, |id| id.0),
            address: extensions.get::<Peer>().map(|peer| peer.address),
            user_agent: agent.chars().take(AGENT_CHARACTERS).collect(),
        }
    }

    /// The address as it is stored.
    #[must_use]
    pub fn ip(&self) -> String {
        self.address.map(|address| address.to_string()).unwrap_or_default()
    }
}

impl<S: Sync> FromRequestParts<S> for Origin {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.extensions, &parts.headers))
    }
}
