//! Errors of calls to a server.

use coder_api::client::{Error, ErrorResponse};
use coder_api::error::ErrorBody;
use url::Url;

use super::{TokenSource, permission};
use crate::terminal::output::strip_control;

/// Longest text of a server that is shown, in characters.
const MAX_SERVER_TEXT: usize = 2048;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Explained {
    pub(super) message: String,
    pub(super) hint: Option<String>,
}

impl Explained {
    fn new(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { message: message.into(), hint: Some(hint.into()) }
    }
}

pub(super) fn explain(error: &Error, token: TokenSource) -> Explained {
    match error {
        Error::Transport { at, source } => transport(error, &Server::of(&at.to_string()), source.as_ref()),
        Error::Timeout { at, after, during } => Explained {
            message: format!(
                "{} did not answer within {after:?} ({during})",
                Server::of(&at.to_string()).url
            ),
            hint: error.hint(),
        },
        Error::Status(refusal) => refused(error, refusal, token),
        Error::Decode { at, .. } => no_coder_server(&Server::of(&at.to_string())),
        Error::TooLarge { at, .. } => Explained::new(
            format!(
                "the answer of {} is longer than any that a Coder server sends",
                Server::of(&at.to_string()).url
            ),
            "check that the URL is that of a Coder server",
        ),
        Error::Protocol { at, what } => Explained {
            message: format!("{} broke the protocol: {what}", Server::of(&at.to_string()).url),
            hint: None,
        },
        other => Explained { message: other.to_string(), hint: other.hint() },
    }
}

/// The server of a call, whose text is a method and a URL without credentials.
struct Server {
    method: String,
    url: String,
    path: String,
    host: String,
    is_https: bool,
}

impl Server {
    fn of(call: &str) -> Self {
        let (method, url) = call.split_once(' ').unwrap_or(("", call));
        let parsed = Url::parse(url).ok();
        let host = parsed.as_ref().and_then(Url::host_str).unwrap_or_default();
        let host = match parsed.as_ref().and_then(Url::port) {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        let scheme = parsed.as_ref().map_or("https", Url::scheme);
        Self {
            method: method.to_owned(),
            url: format!("{scheme}://{host}"),
            path: parsed.as_ref().map(|url| url.path().to_owned()).unwrap_or_default(),
            is_https: scheme != "http",
            host,
        }
    }
}

/// Causes of an error, the content of I/O errors included, which `source` leaves out.
fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| {
        let content = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let content = content.map(|content| content as &(dyn std::error::Error + 'static));
        content.or_else(|| error.source())
    })
}

fn transport(error: &Error, server: &Server, source: &(dyn std::error::Error + 'static)) -> Explained {
    let Server { url, host, .. } = server;
    let is_plain_http = |cause: &(dyn std::error::Error + 'static)| {
        matches!(cause.downcast_ref::<rustls::Error>(), Some(rustls::Error::InvalidMessage(_)))
    };
    if server.is_https && causes(source).any(is_plain_http) {
        return Explained::new(
            format!("cannot reach {url}: the server does not use TLS on this port"),
            format!("write the URL with http: http://{host}"),
        );
    }
    let texts: Vec<String> = causes(source).map(ToString::to_string).collect();
    let has = |words: &[&str]| texts.iter().any(|text| words.iter().any(|word| text.contains(word)));
    // The error of an HTTP client after a TLS alert, or when the server closes the connection at the first byte.
    if !server.is_https
        && has(&["invalid HTTP", "connection closed before message completed", "reset by peer"])
    {
        return Explained::new(
            format!("cannot reach {url}: the server does not answer with HTTP on this port"),
            format!("if the server uses TLS, write the URL with https: https://{host}"),
        );
    }
    let refused = causes(source).any(|cause| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    if refused {
        return Explained::new(
            format!("cannot reach {url}: nothing listens at {host}"),
            "check the URL, and that the server is running",
        );
    }
    if has(&["failed to lookup address", "dns error"]) {
        return Explained::new(
            format!("cannot reach {url}: the name of the host is not known"),
            "check the spelling of the URL, and the network",
        );
    }
    let cause = texts.last().cloned().unwrap_or_default();
    Explained { message: format!("cannot reach {url}: {cause}"), hint: error.hint() }
}

fn no_coder_server(server: &Server) -> Explained {
    Explained::new(
        format!("{} answers, but it is not a Coder server", server.url),
        "check the URL: it is the one that people open in the browser, such as https://coder.example.com",
    )
}

/// Whether the response came from a web server or a proxy instead of a Coder server: it is not JSON.
fn is_foreign(body: &ErrorBody) -> bool {
    body.message.starts_with("the answer is not an API error")
}

fn refused(error: &Error, refusal: &ErrorResponse, token: TokenSource) -> Explained {
    let server = Server::of(&refusal.at.to_string());
    let status = refusal.status.as_u16();
    if let Some(location) = &refusal.location {
        return Explained::new(
            format!("{} redirects to another address", server.url),
            format!("use the address it redirects to: {}", clean(location)),
        );
    }
    if is_foreign(&refusal.body) {
        return match status {
            // The answer of Go's web server, and so of official servers.
            400 if !server.is_https => Explained::new(
                format!("cannot reach {}: the server does not accept plain HTTP on this port", server.url),
                format!("if the server uses TLS, write the URL with https: https://{}", server.host),
            ),
            500.. => Explained::new(
                format!("a proxy before {} answers with status {status}", server.url),
                "check that the server behind the proxy is running",
            ),
            _ => no_coder_server(&server),
        };
    }
    let server_text = text_of(&refusal.body);
    match status {
        // Calls whose 401 is not about the session say so themselves.
        401 if error.hint().is_some_and(|hint| hint != LOG_IN_AGAIN) => {
            Explained { message: server_text, hint: error.hint() }
        }
        401 => session(&server, token),
        403 => permission::explain(&server.method, &server.path, &server_text),
        _ => Explained { message: server_text, hint: error.hint() },
    }
}

/// The hint of a lost session.
const LOG_IN_AGAIN: &str = "log in again with `coder login`";

fn session(server: &Server, token: TokenSource) -> Explained {
    let url = &server.url;
    match token {
        TokenSource::Saved => Explained::new(
            format!("you are not logged in to {url} any more: the session has expired or was ended"),
            format!("log in again: coder login {url}"),
        ),
        TokenSource::Variable => Explained::new(
            format!("{url} does not accept the token in CODER_SESSION_TOKEN: it has expired or was deleted"),
            "unset CODER_SESSION_TOKEN to use the session of `coder login`, or set it to a new token from `coder tokens \
             create`",
        ),
        TokenSource::Flag => Explained::new(
            format!("{url} does not accept the token of --token: it has expired or was deleted"),
            "make a new one with `coder tokens create`",
        ),
    }
}

/// The server's text as one sentence.
fn text_of(body: &ErrorBody) -> String {
    let mut text = sentence(&body.message);
    for validation in &body.validations {
        let detail = sentence(&validation.detail);
        // The message about a single invalid field often repeats its detail.
        if !text.contains(&detail) {
            text.push_str(&format!("; {}: {detail}", clean(&validation.field)));
        }
    }
    if !body.detail.is_empty() && !text.contains(&body.detail) {
        text.push_str(&format!(": {}", sentence(&body.detail)));
    }
    text
}

fn sentence(text: &str) -> String {
    clean(text).trim().trim_end_matches('.').to_owned()
}

/// A text of a peer, which must not control or fill the terminal.
fn clean(text: &str) -> String {
    strip_control(text).chars().take(MAX_SERVER_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use coder_api::error::Validation;

    use super::*;

    #[test]
    fn the_server_of_a_call() {
        let server = Server::of("POST http://127.0.0.1:3000/api/v2/users");
        assert_eq!((server.method.as_str(), server.url.as_str()), ("POST", "http://127.0.0.1:3000"));
        assert_eq!((server.path.as_str(), server.is_https), ("/api/v2/users", false));
        assert_eq!(Server::of("GET https://coder.example.com/").url, "https://coder.example.com");
    }

    #[test]
    fn a_lost_session_names_where_its_token_came_from() {
        let server = Server::of("GET https://c/api/v2/users/me");
        let hint = |source| session(&server, source).hint.unwrap();
        assert_eq!(hint(TokenSource::Saved), "log in again: coder login https://c");
        assert!(hint(TokenSource::Variable).starts_with("unset CODER_SESSION_TOKEN"));
        assert!(session(&server, TokenSource::Flag).message.contains("--token"));
    }

    #[test]
    fn a_refusal_is_one_sentence() {
        let body = ErrorBody {
            message: "Validation failed.".to_owned(),
            validations: vec![Validation { field: "name".to_owned(), detail: "Too long.".to_owned() }],
            ..ErrorBody::default()
        };
        assert_eq!(text_of(&body), "Validation failed; name: Too long");
        let body = ErrorBody {
            message: "No\u{1b}[2J.".to_owned(),
            detail: "why".to_owned(),
            ..ErrorBody::default()
        };
        assert_eq!(text_of(&body), "No: why");
    }
}
