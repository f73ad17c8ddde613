//! What a server's answer to a join request means (wire-protocol 1.6, 1.7). The request itself is made by the client of
//! `coder-api`.

use coder_domain::protocol::ApiVersion;

/// Why a daemon is not connected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server will never let this daemon in; trying again is pointless.
    #[error(
        "the server refuses this daemon (403): {0}; check that the key or user may run provisioners with these tags in this organization"
    )]
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
                let version =
                    parsed.as_ref().and_then(|body| body.validations.iter().find(|v| v.field == "version"));
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
mod tests {
    use coder_domain::protocol::CURRENT;

    use super::*;

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
