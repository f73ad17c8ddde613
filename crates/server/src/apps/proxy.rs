//! Forwards a request to an app over the overlay network, and its response back. Bodies are passed on piece by piece; redirects are
//! the browser's to follow.

use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::response::Response;
use coder_domain::apps::{FIRST_PORT, Port};
use coder_wire::error_chain;
use http::header::{self, HeaderValue};
use http::{Method as HttpMethod, StatusCode, Version};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode;
use url::Url;

use super::grant::{Grant, Method};
use super::headers::{self, Forwarded};
use super::lasting::{LastingBody, Right, Upgraded};
use super::origins::Answers;
use super::{destination, transport};
use crate::context::App;
use crate::http::origin::Encrypted;
use crate::http::peer::Peer;
use crate::http::{AccessUrl, Error};
use crate::memory::Watched;
use crate::network::server_node::DialError;

/// Bytes that are copied at once in an upgraded connection.
const BUFFER_BYTES: usize = 16 << 10;
/// The name of upgraded connections in metrics.
const UPGRADED: &str = "(app)";

/// Marks a response of an app, in its extensions: the server adds nothing to it.
#[derive(Clone, Copy, Debug)]
pub struct Proxied;

/// Where an app listens in its workspace. The host of its URL does not count: it is the agent.
pub(super) struct AppAddress {
    tls: bool,
    port: u16,
    /// Without a slash at its end.
    path: String,
    query: Option<String>,
}

impl AppAddress {
    /// Reads the URL of a template.
    pub(super) fn of(url: &str) -> Result<Self, Error> {
        let bad = |detail: String| Error::bad_request("The address of this app is not valid.").detail(detail);
        let url =
            Url::parse(url).map_err(|error| bad(format!("{error}: ask the author of the template.")))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(bad(format!("It begins with {}, but only http and https are served.", url.scheme())));
        }
        let port = url.port_or_known_default().unwrap_or_default();
        if port < FIRST_PORT {
            return Err(bad(format!(
                "Port {port} is lower than {FIRST_PORT}, which is the lowest that is served."
            )));
        }
        Ok(Self {
            tls: url.scheme() == "https",
            port,
            path: url.path().trim_end_matches('/').to_owned(),
            query: url.query().filter(|query| !query.is_empty()).map(str::to_owned),
        })
    }

    /// The query with which the app opens, when a request has neither a path nor a query.
    pub(super) fn first_query(&self, rest: &str, query: Option<&str>) -> Option<&str> {
        let is_first = rest == "/" && query.unwrap_or_default().is_empty();
        self.query.as_deref().filter(|_| is_first)
    }

    /// The path and query for the app. A path of the template cannot be left.
    fn path_and_query(&self, rest: &str, query: Option<&str>) -> Result<String, Error> {
        if !self.path.is_empty() && has_dots(rest) {
            return Err(Error::bad_request("The path may not contain dot segments."));
        }
        let query = query.map(headers::query_without_credentials).filter(|query| !query.is_empty());
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        Ok(format!("{}{rest}{query}", self.path))
    }
}

/// Times that a path may be escaped.
const MAX_ESCAPES: usize = 3;

/// Whether a path has a segment `.` or `..`, escaped or not.
fn has_dots(path: &str) -> bool {
    let mut plain = path.as_bytes().to_vec();
    for _ in 0..=MAX_ESCAPES {
        // Some servers read a backslash as a slash, and drop what follows a semicolon.
        let segments = plain.split(|byte| matches!(byte, b'/' | b'\\'));
        let mut names =
            segments.map(|segment| segment.split(|byte| *byte == b';').next().unwrap_or_default());
        if names.any(|name| matches!(name, b"." | b"..")) {
            return true;
        }
        // Many decode a path before they split it, and some decode it twice.
        let decoded: Vec<u8> = percent_decode(&plain).collect();
        if decoded.len() == plain.len() {
            return false;
        }
        plain = decoded;
    }
    true
}

/// Forwards a request whose path below the app is `rest`.
pub(super) async fn forward(
    app: &App,
    grant: &Grant,
    target: &AppAddress,
    rest: &str,
    answers: Option<&Answers>,
    mut request: Request,
) -> Result<Response, Error> {
    if *request.method() == HttpMethod::CONNECT {
        return Err(Error::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "An app does not serve as a proxy: CONNECT is not allowed.",
        ));
    }
    let method = grant.request.access_method;
    let path = target.path_and_query(rest, request.uri().query())?;
    let uri = transport::uri(grant.owner_id, grant.agent_id, target.tls, target.port, &path)
        .map_err(|_| Error::bad_request("The path is not valid."))?;
    let host = destination::host(&request).and_then(|host| HeaderValue::from_str(host).ok());
    let peer = Peer::of(&request, &app.config.proxies);
    let from = forwarded(app, &request, peer);
    let protocol = headers::prepare_request(request.headers_mut(), &from);
    let client_end = request.extensions_mut().remove::<OnUpgrade>().filter(|_| protocol.is_some());
    let right = Right::of(app, grant);
    let lasting = match &client_end {
        Some(_) => {
            let permit = app.apps.upgrades.admit(peer.address).ok_or_else(too_many_upgrades)?;
            Some((permit, Upgraded::begin(right.clone(), grant).await?))
        }
        None => None,
    };
    let (mut parts, body) = request.into_parts();
    parts.uri = uri;
    parts.version = Version::HTTP_11;
    if let Some(host) = host {
        parts.headers.insert(header::HOST, host);
    }
    let mut ended = Box::pin(right.ended_slowly());
    let sent = tokio::select! {
        sent = app.apps.transport.request(Request::from_parts(parts, body)) => sent,
        () = ended.as_mut() => return Err(Error::not_found()),
    };
    let (mut parts, body) = sent.map_err(|error| unreachable(grant, &error))?.into_parts();
    let protocol = headers::prepare_response(&mut parts.headers, method);
    if let Some(answers) = answers {
        answers.replace(&mut parts.headers);
    }
    parts.version = Version::HTTP_11;
    let mut response = if parts.status == StatusCode::SWITCHING_PROTOCOLS {
        let app_end = parts.extensions.remove::<OnUpgrade>();
        let (Some(client_end), Some((permit, upgraded)), Some(app_end), Some(protocol)) =
            (client_end, lasting, app_end, protocol)
        else {
            return Err(bad_gateway("The app changed to another protocol, which nobody asked for."));
        };
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        parts.headers.insert(header::UPGRADE, protocol);
        let (counted, soft) = (app.metrics.socket(UPGRADED), app.lifecycle.soft().clone());
        app.lifecycle.spawn("upgraded connection of an app", async move {
            let _held = (permit, counted);
            tokio::select! {
                () = copy(client_end, app_end) => {}
                () = upgraded.ended() => {}
                () = soft.cancelled() => {}
            }
        });
        Response::from_parts(parts, Body::empty())
    } else {
        Response::from_parts(parts, Body::new(LastingBody::new(body, ended)))
    };
    response.extensions_mut().insert(Proxied);
    response.extensions_mut().insert(Watched);
    Ok(response)
}

async fn copy(client: OnUpgrade, app: OnUpgrade) {
    let (client, app) = match tokio::try_join!(client, app) {
        Ok(both) => both,
        Err(error) => {
            return tracing::debug!(%error, "one end of an upgraded connection left before it began");
        }
    };
    let (mut client, mut app) = (TokioIo::new(client), TokioIo::new(app));
    let copied =
        tokio::io::copy_bidirectional_with_sizes(&mut client, &mut app, BUFFER_BYTES, BUFFER_BYTES).await;
    if let Err(error) = copied {
        tracing::debug!(%error, "an upgraded connection of an app broke");
    }
}

fn forwarded<'a>(app: &'a App, request: &Request, peer: Peer) -> Forwarded<'a> {
    let direct = request.extensions().get::<ConnectInfo<std::net::SocketAddr>>().map(|info| info.0.ip());
    let is_trusted = direct.is_some_and(|direct| app.config.proxies.trusts(direct.to_canonical()));
    let client = if is_trusted { direct.unwrap_or(peer.address) } else { peer.address };
    let url = AccessUrl::of(&app.config, request.headers(), request.extensions());
    let encrypted = request.extensions().get::<Encrypted>().is_some() || url.0.starts_with("https://");
    Forwarded {
        client: client.to_string(),
        by_proxy: is_trusted,
        scheme: if encrypted { "https" } else { "http" },
        proxy_headers: &app.config.proxies.headers,
    }
}

fn bad_gateway(detail: impl ToString) -> Error {
    Error::new(StatusCode::BAD_GATEWAY, "The app cannot be reached.").detail(detail)
}

fn too_many_upgrades() -> Error {
    Error::new(StatusCode::SERVICE_UNAVAILABLE, "There are too many open connections to apps.")
        .detail("Close some pages, or try again in a moment.")
}

/// 502 with the cause, as far as it is known.
fn unreachable(grant: &Grant, error: &hyper_util::client::legacy::Error) -> Error {
    let dial = error_chain::causes(error).find_map(|cause| cause.downcast_ref::<DialError>());
    match dial {
        Some(dial @ (DialError::TooManyConnections | DialError::AgentTooBusy | DialError::OwnerTooBusy)) => {
            return Error::new(StatusCode::SERVICE_UNAVAILABLE, "The app cannot be reached.").detail(dial);
        }
        Some(dial) => return bad_gateway(dial),
        None => {}
    }
    tracing::debug!(agent_id = %grant.agent_id, error = error_chain::describe(error), "an app failed");
    let port = Port::parse(&grant.request.app_slug_or_port)
        .filter(|_| grant.request.access_method == Method::Subdomain);
    bad_gateway(match port {
        Some(Port { number, tls: false }) => {
            format!("It did not answer with HTTP. If it speaks HTTPS, open {number}s in the place of {number}.")
        }
        Some(Port { number, tls: true }) => {
            format!("It did not answer with HTTPS. If it speaks HTTP, open {number} in the place of {number}s.")
        }
        None => "It did not answer with HTTP, or ended the connection too early. Its log in the workspace may say why.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_templates() {
        let target = AppAddress::of("http://localhost:8080/base/?folder=x").ok().unwrap();
        assert_eq!((target.tls, target.port, &*target.path), (false, 8080, "/base"));
        assert_eq!(target.first_query("/", None), Some("folder=x"));
        assert_eq!(target.first_query("/", Some("")), Some("folder=x"));
        assert_eq!(target.first_query("/", Some("a")), None);
        assert_eq!(target.first_query("/x", None), None);
        assert_eq!(
            AppAddress::of("https://10.0.0.7").ok().map(|target| (target.tls, target.port)),
            Some((true, 443))
        );
        for bad in
            ["http://localhost:8", "ftp://localhost", "file:///etc/passwd", "localhost:80", "", "http://"]
        {
            assert_eq!(
                AppAddress::of(bad).err().map(|error| error.status()),
                Some(StatusCode::BAD_REQUEST),
                "{bad}"
            );
        }
    }

    #[test]
    fn path_of_a_template_is_not_left() {
        let inside = AppAddress::of("http://localhost:8080/public").ok().unwrap();
        let path = |rest| inside.path_and_query(rest, Some("a=1")).ok();
        for kept in ["/x/..y", "/%2525", "/a%2Fb", "/...", "/a%00b"] {
            assert_eq!(path(kept), Some(format!("/public{kept}?a=1")));
        }
        for outside in [
            "/..",
            "/../private",
            "/x/%2e%2E/y",
            "/.%2e",
            "/x/..;/y",
            "/a\\..\\b",
            "/%2e%2e%5cb",
            "/./x",
            "/..%3bx/",
            "/..%2fprivate",
            "/x%2F%2e%2e%2Fprivate",
            "/%252e%252e/private",
            "/..%255cprivate",
            "/%25252e%25252e/private",
            "/%2525252525",
        ] {
            assert_eq!(path(outside), None, "{outside}");
        }
        let root = AppAddress::of("http://localhost:8080").ok().unwrap();
        assert_eq!(root.path_and_query("/../x", None).ok(), Some("/../x".to_owned()));
    }
}
