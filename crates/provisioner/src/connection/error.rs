//! What a server's answer to a join request means (wire-protocol 1.6, 1.7). The client of `coder-api` makes the
//! request.

use coder_domain::protocol::ApiVersion;

/// Why a daemon could not connect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The server permanently refuses this daemon; the daemon does not retry.
    #[error(
        "the server refuses this daemon (403): {0}; check that the key or user may run provisioners with these tags in this organization"
    )]
    Forbidden(String),
    /// The server does not know the credential. It may be created later, so the daemon retries.
    #[error("the server does not accept the credential: {0}")]
    Unauthorized(String),
    /// The server speaks an older version of the protocol.
    #[error("the server does not speak protocol version {offered} (400): {message}")]
    Version {
        offered: ApiVersion,
        message: String,
        /// The version that the server reports.
        server: Option<ApiVersion>,
    },
    /// Any other error, which may be temporary.
    #[error("{0}")]
    Retry(String),
}

impl ConnectError {
    /// Whether the daemon must not retry (wire-protocol 1.7).
    pub fn is_final(&self) -> bool {
        matches!(self, ConnectError::Forbidden(_))
    }

    /// Interprets an HTTP response other than 101. `body` may be truncated or not JSON.
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
            429 => ConnectError::Retry(format!("the server is rate limiting this daemon (429): {message}")),
            other => ConnectError::Retry(format!("the server answered {other}: {message}")),
        }
    }

    /// The version to offer next to a server that refused ours, if this daemon can speak it.
    pub fn lower_version(&self) -> Option<ApiVersion> {
        match self {
            ConnectError::Version { offered, server: Some(server), .. } if server.major == offered.major => {
                (server.minor < offered.minor).then_some(*server)
            }
            _ => None,
        }
    }
}

/// The first `major.minor` in the server's message (wire-protocol 1.6).
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
