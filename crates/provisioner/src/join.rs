//! How a daemon presents itself to a server: the request it joins with, and what an answer means (wire-protocol 1.2–1.7).

use std::collections::BTreeMap;

use coder_api::{headers, paths};
use coder_domain::protocol::ApiVersion;
use coder_domain::secret::Secret;

const ONLY_PROVISIONER: &str = "terraform";

/// What a daemon authenticates with. Its `Debug` shows the kind only.
#[derive(Clone)]
pub enum Credential {
    /// A scoped provisioner key; organization and tags come from it.
    Key(Secret),
    /// The deployment's pre-shared key.
    Psk(Secret),
    /// A user's session token.
    Session(Secret),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Credential::Key(_) => "Credential::Key(…)",
            Credential::Psk(_) => "Credential::Psk(…)",
            Credential::Session(_) => "Credential::Session(…)",
        })
    }
}

/// Everything a join request is made of.
#[derive(Debug, Clone)]
pub struct Join {
    /// Organization id or name; a key or PSK joins `default`.
    pub organization: String,
    pub name: String,
    pub tags: BTreeMap<String, String>,
    pub credential: Credential,
    /// Sent as the daemon's version, such as `v2.30.0+1a2b3c4`.
    pub build_version: String,
    /// [`coder_domain::protocol::CURRENT`], or less towards an older server.
    pub api_version: ApiVersion,
}

/// The request to send with a WebSocket upgrade.
#[derive(Clone)]
pub struct JoinRequest {
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    /// Names and values; the values contain the credential.
    pub headers: Vec<(&'static str, Secret)>,
}

impl std::fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinRequest").field("path", &self.path).field("query", &self.query).finish_non_exhaustive()
    }
}

impl Join {
    pub fn request(&self) -> JoinRequest {
        let mut query = vec![("name", self.name.clone()), ("provisioner", ONLY_PROVISIONER.to_owned())];
        // With a key the tags are the key's; a server refuses a request that brings others.
        if !matches!(self.credential, Credential::Key(_)) {
            query.extend(self.tags.iter().map(|(key, value)| ("tag", format!("{key}={value}"))));
        }
        query.push(("version", self.api_version.to_string()));
        let mut request_headers = vec![(headers::BUILD_VERSION, Secret::new(self.build_version.clone()))];
        match &self.credential {
            Credential::Key(key) => request_headers.push((headers::PROVISIONER_KEY, key.clone())),
            Credential::Psk(psk) => request_headers.push((headers::PROVISIONER_PSK, psk.clone())),
            Credential::Session(token) => {
                let cookie = format!("{}={}", headers::SESSION_COOKIE, token.expose());
                request_headers.push(("cookie", Secret::new(cookie)));
                // Servers of 2026 and later read the header.
                request_headers.push((headers::SESSION_TOKEN, token.clone()));
            }
        }
        JoinRequest { path: paths::serve(&self.organization), query, headers: request_headers }
    }
}

/// Why a daemon is not connected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server will never let this daemon in; trying again is pointless.
    #[error("the server refuses this daemon (403): {0}; check that the key or user may run provisioners with these tags in this organization")]
    Forbidden(String),
    /// The credential is not known, now. It may be created later, so the daemon goes on trying.
    #[error("the server does not accept the credential (401): {0}; check the key, PSK or token")]
    Unauthorized(String),
    /// The server speaks an older version of the protocol.
    #[error("the server does not speak protocol version {offered} (400): {message}")]
    Version {
        offered: ApiVersion,
        message: String,
        /// The version the server says it has.
        server: Option<ApiVersion>,
    },
    /// Anything else that may pass.
    #[error("{0}")]
    Retry(String),
}

impl ConnectError {
    /// Whether the daemon must not try again (wire-protocol 1.7).
    pub fn is_final(&self) -> bool {
        matches!(self, ConnectError::Forbidden(_))
    }

    /// What an HTTP answer other than 101 means. `body` may be cut or not be JSON at all.
    pub fn from_response(status: u16, body: &[u8], offered: ApiVersion) -> Self {
        let parsed: Option<coder_api::error::ErrorBody> = serde_json::from_slice(body).ok();
        let message = match &parsed {
            Some(parsed) if parsed.detail.is_empty() => parsed.message.clone(),
            Some(parsed) => format!("{} ({})", parsed.message, parsed.detail),
            None => format!("status {status}"),
        };
        match status {
            403 => ConnectError::Forbidden(message),
            401 => ConnectError::Unauthorized(message),
            400 => {
                let version = parsed.as_ref().and_then(|body| body.validations.iter().find(|v| v.field == "version"));
                match version {
                    Some(validation) => ConnectError::Version {
                        offered,
                        message: validation.detail.clone(),
                        server: server_version(&validation.detail),
                    },
                    None => ConnectError::Retry(format!("the server refuses the request (400): {message}")),
                }
            }
            404 => ConnectError::Retry(format!(
                "the server has no such organization, or does not serve external provisioners (404): {message}"
            )),
            429 => ConnectError::Retry(format!("the server asks to try less often (429): {message}")),
            other => ConnectError::Retry(format!("the server answered {other}: {message}")),
        }
    }

    /// The version to offer next to a server that refused the one offered, if this daemon can lower its own.
    pub fn lower_version(&self) -> Option<ApiVersion> {
        match self {
            ConnectError::Version { offered, server: Some(server), .. } if server.major == offered.major => {
                (server.minor < offered.minor).then_some(*server)
            }
            _ => None,
        }
    }
}

/// The first `major.minor` in the server's words (wire-protocol 1.6).
fn server_version(text: &str) -> Option<ApiVersion> {
    let at = text.find("version ")?;
    text[at + "version ".len()..].split([',', ' ']).next()?.parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use coder_domain::protocol::CURRENT;

    use super::*;

    fn join(credential: Credential) -> Join {
        Join {
            organization: "default".to_owned(),
            name: "d1".to_owned(),
            tags: BTreeMap::from([("a".to_owned(), "b=c".to_owned()), ("scope".to_owned(), "organization".to_owned())]),
            credential,
            build_version: "v2.30.0+1234567".to_owned(),
            api_version: CURRENT,
        }
    }

    fn header<'r>(request: &'r JoinRequest, name: &str) -> Option<&'r str> {
        request.headers.iter().find(|(known, _)| *known == name).map(|(_, value)| value.expose())
    }

    #[test]
    fn a_key_brings_its_own_tags() {
        let request = join(Credential::Key(Secret::new("k"))).request();
        assert_eq!(request.path, "/api/v2/organizations/default/provisionerdaemons/serve");
        assert!(request.query.iter().all(|(name, _)| *name != "tag"));
        assert!(request.query.contains(&("version", "1.14".to_owned())));
        assert!(request.query.contains(&("provisioner", "terraform".to_owned())));
        assert_eq!(header(&request, headers::PROVISIONER_KEY), Some("k"));
        assert_eq!(header(&request, headers::BUILD_VERSION), Some("v2.30.0+1234567"));
    }

    #[test]
    fn other_credentials_send_tags() {
        let request = join(Credential::Psk(Secret::new("p"))).request();
        assert!(request.query.contains(&("tag", "a=b=c".to_owned())));
        assert_eq!(header(&request, headers::PROVISIONER_PSK), Some("p"));
        let request = join(Credential::Session(Secret::new("t"))).request();
        assert_eq!(header(&request, "cookie"), Some("coder_session_token=t"));
        assert!(!format!("{request:?}{:?}", Credential::Key(Secret::new("hunter2"))).contains("hunter2"));
    }

    #[test]
    fn answers_are_classified() {
        let check = |status, body: &str| ConnectError::from_response(status, body.as_bytes(), CURRENT);
        let forbidden = check(403, r#"{"message":"no","detail":"why"}"#);
        assert!(forbidden.is_final() && forbidden.to_string().contains("no (why)"));
        assert!(matches!(check(401, "<html>"), ConnectError::Unauthorized(_)));
        for status in [400, 404, 429, 500, 503] {
            assert!(matches!(check(status, ""), ConnectError::Retry(_)), "{status}");
        }
    }

    #[test]
    fn an_older_server_is_offered_its_own_version() {
        let body = r#"{"message":"m","validations":[{"field":"version",
            "detail":"server is at version 1.9, behind requested minor version 1.14"}]}"#;
        let error = ConnectError::from_response(400, body.as_bytes(), CURRENT);
        assert_eq!(error.lower_version(), Some(ApiVersion { major: 1, minor: 9 }));
        assert!(!error.is_final());
        let again = ConnectError::from_response(400, body.as_bytes(), ApiVersion { major: 1, minor: 9 });
        assert_eq!(again.lower_version(), None, "the same version is not offered twice");
    }
}
