//! The errors of a call, by what a caller can do about them.

use std::fmt;
use std::time::Duration;

use http::{Method, StatusCode};
use rustls::CertificateError;
use url::Url;

use super::tls;
use super::tls::verifier::is_of_authority;
use crate::error::ErrorBody;

const NETWORK_HINT: &str = "check the address, the network and that the server is running";

/// Why a call failed. The texts contain no credential: URLs are shown without user, query and fragment.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's address cannot be used.
    #[error("invalid server URL: {0}; write it as https://host or http://host:port")]
    InvalidUrl(String),
    /// A proxy's address cannot be used; it is not shown since it may contain a password.
    #[error(
        "invalid proxy address in HTTPS_PROXY, HTTP_PROXY or ALL_PROXY; write it as http://host:port or https://host:port"
    )]
    InvalidProxy,
    /// An extra header cannot be sent.
    #[error("invalid header {0:?}: names are tokens and values are visible ASCII")]
    InvalidHeader(String),
    /// The session token cannot be sent.
    #[error("the session token contains characters that no token has; log in again")]
    InvalidToken,
    /// Certificate authorities could not be loaded.
    #[error(transparent)]
    Tls(#[from] tls::Error),
    /// The HTTP client could not be set up.
    #[error("cannot set up the HTTP client")]
    Setup(#[source] reqwest::Error),
    /// The server was not reached, or the connection broke.
    #[error("cannot reach {at}")]
    Transport {
        at: Call,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server, or the way to it, was silent for too long.
    #[error("{at}: no answer within {after:?} ({during})")]
    Timeout {
        at: Call,
        /// The limit.
        after: Duration,
        /// What timed out.
        during: &'static str,
    },
    /// The server sent an error status.
    #[error(transparent)]
    Status(Box<ErrorResponse>),
    /// The response is longer than the limit of this call.
    #[error("{at}: the answer is longer than {limit} bytes")]
    TooLarge {
        at: Call,
        /// The limit in bytes.
        limit: usize,
    },
    /// The answer could not be read.
    #[error("{at}: the answer is not what this call returns; is this a Coder server?")]
    Decode {
        at: Call,
        /// Where reading stopped.
        #[source]
        source: serde_json::Error,
    },
    /// The peer violated a protocol.
    #[error("{at}: {what}")]
    Protocol {
        at: Call,
        /// The violation.
        what: String,
    },
}

impl Error {
    /// The status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Status(refusal) => Some(refusal.status),
            _ => None,
        }
    }

    /// The body of a refusal.
    #[must_use]
    pub fn body(&self) -> Option<&ErrorBody> {
        match self {
            Self::Status(refusal) => Some(&refusal.body),
            _ => None,
        }
    }

    /// Sets the hint of a 401, for calls that do not use the session.
    pub(super) fn with_advice(mut self, advice: &'static str) -> Self {
        if let Self::Status(refusal) = &mut self {
            refusal.advice = Some(advice);
        }
        self
    }

    /// Whether the server answered that something does not exist, or is not visible.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.status() == Some(StatusCode::NOT_FOUND)
    }

    /// Whether the same call may succeed later without a change.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Timeout { .. } => true,
            Self::Status(refusal) => matches!(refusal.status.as_u16(), 408 | 429 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// How long to wait before the next attempt, if the server sent it.
    pub(super) fn retry_after(&self) -> Duration {
        match self {
            Self::Status(refusal) => refusal.retry_after.unwrap_or_default(),
            _ => Duration::ZERO,
        }
    }

    /// What the user can do about it.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Status(refusal) => refusal.hint(),
            Self::Transport { source, .. } => Some(match source.downcast_ref::<BadCertificate>() {
                None => NETWORK_HINT.to_owned(),
                Some(bad) => bad.hint().to_owned(),
            }),
            Self::Timeout { .. } => Some(NETWORK_HINT.to_owned()),
            _ => None,
        }
    }
}

/// The server's certificate is refused.
#[derive(Debug, thiserror::Error)]
#[error("the server's certificate {}", self.words())]
struct BadCertificate(CertificateError);

impl BadCertificate {
    fn words(&self) -> String {
        use CertificateError as Problem;
        match &self.0 {
            Problem::UnknownIssuer
            | Problem::BadSignature
            // An authority of the same name is trusted, and has a key of another kind.
            | Problem::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                "is not signed by an authority that is trusted here".to_owned()
            }
            problem if is_of_authority(problem) => {
                "is that of an authority (basicConstraints CA:TRUE), and is not itself trusted here"
                    .to_owned()
            }
            Problem::Expired | Problem::ExpiredContext { .. } => "has expired".to_owned(),
            Problem::NotValidYet | Problem::NotValidYetContext { .. } => "is not valid yet".to_owned(),
            Problem::NotValidForNameContext { expected, presented } if presented.is_empty() => {
                format!("is not for {}: it names no host (subjectAltName)", expected.to_str())
            }
            Problem::NotValidForNameContext { expected, presented } => {
                format!("is not for {} but for {}", expected.to_str(), plain(&names(presented), 256))
            }
            Problem::NotValidForName => "is not for this host".to_owned(),
            Problem::InvalidPurpose | Problem::InvalidPurposeContext { .. } => {
                "is not for servers (extendedKeyUsage)".to_owned()
            }
            Problem::UnsupportedSignatureAlgorithmContext { .. } => {
                "is signed by an algorithm that is not supported here".to_owned()
            }
            Problem::Revoked => "was revoked".to_owned(),
            problem => format!("cannot be used: {}", plain(&problem.to_string(), 256)),
        }
    }

    const fn hint(&self) -> &'static str {
        use CertificateError as Problem;
        match &self.0 {
            Problem::UnknownIssuer
            | Problem::BadSignature
            | Problem::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
                "name the PEM file of its authority, or of the certificate itself if it is self-signed, in SSL_CERT_FILE"
            }
            Problem::Other(_) => {
                "name the PEM file of exactly this certificate in SSL_CERT_FILE, or give the server one with basicConstraints CA:FALSE"
            }
            Problem::Expired
            | Problem::ExpiredContext { .. }
            | Problem::NotValidYet
            | Problem::NotValidYetContext { .. } => {
                "look at the clocks of both machines, or give the server a new certificate"
            }
            Problem::NotValidForName | Problem::NotValidForNameContext { .. } => {
                "use a name that the certificate has, or give the server one for this name (openssl: -addext subjectAltName=DNS:host)"
            }
            _ => "give the server another certificate",
        }
    }
}

/// The names of a certificate, which come as `DnsName("host")` and `IpAddress(127.0.0.1)`.
fn names(presented: &[String]) -> String {
    let name = |shown: &String| {
        let inner = shown.split_once('(').map_or(shown.as_str(), |(_, rest)| rest.trim_end_matches(')'));
        inner.trim_matches('"').to_owned()
    };
    presented.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// If a call failed because of the server's certificate: what is wrong with it and what to do. For callers that use
/// [`tls_config`](super::tls_config) with another client.
#[must_use]
pub fn refused_certificate(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let bad = BadCertificate(certificate_problem(error)?.clone());
    Some(format!("{bad}: {}", bad.hint()))
}

fn certificate_problem<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a CertificateError> {
    if let Some(rustls::Error::InvalidCertificate(problem)) = error.downcast_ref() {
        return Some(problem);
    }
    // An I/O error's `source` is its content's source, so the content itself has to be asked for.
    let content = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let inner =
        content.map(|content| content as &(dyn std::error::Error + 'static)).or_else(|| error.source());
    inner.and_then(certificate_problem)
}

/// Which call an error belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    method: Method,
    url: String,
}

impl Call {
    /// Keeps the parts of the URL that may be shown.
    pub(super) fn new(method: Method, url: &Url) -> Self {
        let mut shown = url.clone();
        // These fail only for URLs without a host, which have neither.
        let _ = shown.set_username("");
        let _ = shown.set_password(None);
        shown.set_query(None);
        shown.set_fragment(None);
        Self { method, url: shown.into() }
    }

    pub(super) fn transport(&self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
        let source = source.into();
        let bad = certificate_problem(source.as_ref()).cloned().map(BadCertificate);
        Error::Transport { at: self.clone(), source: bad.map_or(source, Into::into) }
    }

    pub(super) fn timeout(&self, after: Duration, during: &'static str) -> Error {
        Error::Timeout { at: self.clone(), after, during }
    }

    pub(super) fn protocol(&self, what: impl Into<String>) -> Error {
        Error::Protocol { at: self.clone(), what: what.into() }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.url)
    }
}

/// An answer with an error status.
#[derive(Clone, Debug)]
pub struct ErrorResponse {
    pub at: Call,
    pub status: StatusCode,
    /// The body; a short note if it is not an API error.
    pub body: ErrorBody,
    /// When to try again, if the server sent it.
    pub retry_after: Option<Duration>,
    /// Where a redirect points.
    pub location: Option<String>,
    /// The hint for a 401 of this call, if it does not mean an ended session.
    advice: Option<&'static str>,
}

impl ErrorResponse {
    /// Parses a response from its status, headers and the part of the body that was read.
    pub(super) fn read(at: Call, status: StatusCode, headers: &http::HeaderMap, body: &[u8]) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let parsed = serde_json::from_slice::<ErrorBody>(body).ok().filter(|body| !body.message.is_empty());
        let body = parsed.unwrap_or_else(|| {
            let kind = text(http::header::CONTENT_TYPE).unwrap_or("nothing");
            ErrorBody::new(format!("the answer is not an API error but {}", plain(kind, 64)))
        });
        let retry_after = text(http::header::RETRY_AFTER).and_then(|text| text.trim().parse().ok());
        let location =
            text(http::header::LOCATION).map(|text| plain(text, 256)).filter(|_| status.is_redirection());
        Self { at, status, body, retry_after: retry_after.map(Duration::from_secs), location, advice: None }
    }

    fn hint(&self) -> Option<String> {
        if let Some(location) = &self.location {
            return Some(format!("the server redirects to {location}; use that address instead"));
        }
        match self.status {
            StatusCode::UNAUTHORIZED => {
                Some(self.advice.unwrap_or("log in again with `coder login`").to_owned())
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let wait = self.retry_after.map_or(60, |wait| wait.as_secs());
                Some(format!("too many requests; try again in {wait} s"))
            }
            status if status.is_server_error() => {
                Some("try again; the server's log has the cause".to_owned())
            }
            _ => None,
        }
    }
}

impl std::error::Error for ErrorResponse {}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: status {}: {}", self.at, self.status.as_u16(), plain(&self.body.message, 2048))?;
        for validation in &self.body.validations {
            write!(f, "; {}: {}", plain(&validation.field, 128), plain(&validation.detail, 1024))?;
        }
        if !self.body.detail.is_empty() {
            write!(f, "; {}", plain(&self.body.detail, 4096))?;
        }
        Ok(())
    }
}

/// A peer's text, shortened and without control characters, so that it cannot control a terminal.
fn plain(text: &str, limit: usize) -> String {
    text.chars().filter(|character| !character.is_control() || *character == '\n').take(limit).collect()
}
