//! Which request something belongs to, and where the request came from.

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

/// Longest name of a program kept, in characters.
const AGENT_CHARACTERS: usize = 256;

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    /// The request, as in its log lines and its answer.
    pub request: Uuid,
    /// The address; none outside of requests.
    pub address: Option<IpAddr>,
    /// The program, as it calls itself.
    pub user_agent: String,
}

impl Origin {
    /// Reads what the outermost layer found out.
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
