//! The layers around every handler: request id, headers, limits, log line, panics, authentication.

use std::panic::AssertUnwindSafe;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use uuid::Uuid;

use crate::apps::Proxied;
use crate::apps::destination::Destination;
use crate::authn::csrf;
use crate::authn::session;
use crate::config::Config;
use crate::context::App;
use crate::http::caller::Caller;
use crate::http::error::Error;
use crate::http::io_timeouts::TimedBody;
use crate::http::limits::{Client, Group};
use crate::http::origin::{Encrypted, Origin, RequestId};
use crate::http::peer::Peer;
use crate::memory::{self, Holder, reserve_response};
use crate::pages;

/// The header by which owners bypass their own rate limits.
const BYPASS: &str = "x-coder-bypass-ratelimit";
const BUILD_VERSION: HeaderName = HeaderName::from_static("x-coder-build-version");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-coder-request-id");

/// The outermost layer.
pub async fn outermost(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let id = Uuid::new_v4();
    let method = request.method().clone();
    let path = loggable(&request);
    let peer = Peer::of(&request, &app.config.proxies);
    let secure = request.extensions().get::<Encrypted>().is_some();
    let started = std::time::Instant::now();
    let app_route = request.extensions().get::<Destination>().map(Destination::route);
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str).or(app_route);
    let route = route.map(str::to_owned);
    let counted = app.metrics.request(&method, route.as_deref());
    request.extensions_mut().insert(RequestId(id));
    request.extensions_mut().insert(peer);
    let is_api = app_route.is_none() && path.starts_with("/api/");
    let for_browser = !is_api && pages::wants_page(request.headers());
    let holder = app.memory.of_address(peer.address);
    request.extensions_mut().insert(holder.clone());
    let stall = app.config.limits.stall_timeout;
    let request = request.map(|body| TimedBody::body(body, stall));

    let answer = AssertUnwindSafe(async {
        match redirect_to_access_url(&app, &request) {
            Some(redirect) => redirect,
            None => answer(&app, request, next).await,
        }
    });
    let answer = answer.catch_unwind().await;
    holder.release();
    let mut response = answer.unwrap_or_else(|_| {
        tracing::error!(request_id = %id, %method, path, "a handler panicked");
        Error::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal error.").into_response()
    });

    let holder = response.extensions_mut().remove::<Holder>().unwrap_or(holder);
    if for_browser {
        response = pages::as_page(response);
    }
    response = reserve_response(response, &holder).await;
    if response.extensions_mut().remove::<Proxied>().is_none() {
        describe(&app, response.headers_mut(), id, secure);
    }
    counted.answered(response.status());
    let status = response.status().as_u16();
    let took_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    if status >= 500 {
        tracing::warn!(request_id = %id, %method, path, status, took_ms, peer = %peer.address, "request");
    } else {
        tracing::debug!(request_id = %id, %method, path, status, took_ms, peer = %peer.address, "request");
    }
    response
}

/// Redirects browsers that used another host name, or HTTP instead of HTTPS, to the access URL, if that is configured. Only
/// pages redirect: clients and daemons do not follow redirects.
fn redirect_to_access_url(app: &App, request: &Request) -> Option<Response> {
    let url = app.config.access_url.as_ref().filter(|_| app.config.redirect_to_access_url)?;
    let path = request.uri().path();
    if request.extensions().get::<Destination>().is_some() {
        return None;
    }
    let is_page = matches!(path, "/" | "/login" | "/cli-auth") && request.method() == http::Method::GET;
    let host = request.headers().get(header::HOST)?.to_str().ok()?;
    let own_host = url.port().map_or_else(
        || url.host_str().map(str::to_owned),
        |port| Some(format!("{}:{port}", url.host_str()?)),
    )?;
    let is_insecure = url.scheme() == "https" && is_unencrypted(&app.config, request);
    if !is_page || (host.eq_ignore_ascii_case(&own_host) && !is_insecure) {
        return None;
    }
    let target = request.uri().path_and_query().map_or(path, http::uri::PathAndQuery::as_str);
    let location = url.join(target).ok()?;
    Some(axum::response::Redirect::temporary(location.as_str()).into_response())
}

/// Whether a browser certainly used HTTP. Behind a proxy that terminates TLS, every request reaches this server over HTTP; a
/// redirect of those would never end. So the proxy's word decides, and without it whether this server listens for HTTPS.
fn is_unencrypted(config: &Config, request: &Request) -> bool {
    if request.extensions().get::<Encrypted>().is_some() {
        return false;
    }
    match request.headers().get("x-forwarded-proto") {
        Some(scheme) => scheme.as_bytes().eq_ignore_ascii_case(b"http"),
        None => config.listen.https.is_some(),
    }
}

/// Applies the limit of the whole API, which runs before authentication (http-api 1.9), and calls the route.
async fn answer(app: &App, request: Request, next: Next) -> Response {
    let peer = *request.extensions().get::<Peer>().expect("inserted above");
    let path = request.uri().path();
    let known = request.extensions().get::<MatchedPath>().map(|_| path);
    let is_api = path.starts_with("/api/v2") && request.extensions().get::<Destination>().is_none();
    let verdict = is_api
        .then(|| app.rates.count(Group::Api, Client::Network(peer.network()), known, app.now()))
        .flatten();
    match verdict {
        None => next.run(request).await,
        Some(verdict) if !verdict.allowed => verdict.refuse(),
        Some(verdict) => {
            let mut response = next.run(request).await;
            if !response.headers().contains_key("x-ratelimit-limit") {
                verdict.describe(response.headers_mut());
            }
            response
        }
    }
}

fn describe(app: &App, headers: &mut HeaderMap, id: Uuid, secure: bool) {
    if let Ok(version) = HeaderValue::from_str(&app.build.compatible) {
        headers.insert(BUILD_VERSION, version);
    }
    if let Ok(id) = HeaderValue::from_str(&id.to_string()) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(header::VARY).or_insert(HeaderValue::from_static("Origin, Cookie"));
    let age = app.config.listen.strict_transport_security;
    if let (true, 1.., Ok(value)) = (secure, age, HeaderValue::from_str(&format!("max-age={age}"))) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, value);
    }
}

/// The path for the log: without query, and without the key that daemons put into it (http-api 5.1).
fn loggable(request: &Request) -> String {
    let path = request.uri().path();
    if path.starts_with("/api/v2/provisionerkeys/") {
        "/api/v2/provisionerkeys/…".to_owned()
    } else {
        path.to_owned()
    }
}

/// Authenticates the caller. Refuses requests without a valid credential, and forged browser requests.
pub async fn authenticate(
    State(app): State<App>,
    mut request: Request,
    next: Next,
) -> Result<Response, Error> {
    let Some(presented) = session::presented(request.headers(), request.uri()) else {
        return Err(session::signed_out(
            "Cookie \"coder_session_token\" or query parameter must be provided.",
        ));
    };
    csrf::check(&app.config, &request, &presented)?;
    let origin = Origin::of(request.extensions(), request.headers());
    let caller: Caller = session::authenticate_from(&app, &presented, origin).await?;
    let holder = memory::of(&request).map(|holder| holder.of_user(&app.memory, caller.user.id));
    request.extensions_mut().insert(caller);
    let Some(holder) = holder else { return Ok(next.run(request).await) };
    request.extensions_mut().insert(holder.clone());
    let mut response = next.run(request).await;
    response.extensions_mut().insert(holder);
    Ok(response)
}

/// Refuses requests from pages of other origins to routes without authentication. They could log a person in as another
/// user, or create the first user.
pub async fn refuse_foreign(State(app): State<App>, request: Request, next: Next) -> Result<Response, Error> {
    csrf::refuse_foreign(&app.config, request.headers(), request.extensions())?;
    Ok(next.run(request).await)
}

/// The caller's own limit on expensive routes; it runs after authentication where there is one.
pub async fn limit_caller(
    State((app, group)): State<(App, Group)>,
    request: Request,
    next: Next,
) -> Result<Response, Error> {
    let caller = request.extensions().get::<Caller>();
    let bypass = request.headers().get(BYPASS).is_some_and(|value| value.as_bytes() == b"true");
    if let (true, Some(caller)) = (bypass, caller) {
        if caller.is_owner() {
            return Ok(next.run(request).await);
        }
        return Err(Error::new(
            StatusCode::PRECONDITION_REQUIRED,
            "You are not permitted to bypass the rate limit, remove the header.",
        ));
    }
    let client = match caller {
        Some(caller) => Client::User(caller.user.id),
        None => {
            let peer = *request.extensions().get::<Peer>().expect("the outermost layer sets the peer");
            Client::Network(peer.network())
        }
    };
    // A name has many spellings in a path. Counted by path, each spelling would have its own limit.
    let path = match group {
        Group::Login => request.extensions().get::<MatchedPath>().map(MatchedPath::as_str),
        Group::Api | Group::Files | Group::Apps => Some(request.uri().path()),
    };
    let verdict = app.rates.count(group, client, path, app.now());
    Ok(match verdict {
        None => next.run(request).await,
        Some(verdict) if !verdict.allowed => verdict.refuse(),
        Some(verdict) => {
            let mut response = next.run(request).await;
            verdict.describe(response.headers_mut());
            response
        }
    })
}

/// 405 for a path that has other methods; which ones is in the header `Allow`.
pub async fn wrong_method(method: http::Method) -> Error {
    Error::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed.")
        .detail(format!("This path does not take {method}."))
}

/// 404 for unknown paths.
pub async fn unknown_path() -> Error {
    Error::new(StatusCode::NOT_FOUND, "Route not found.")
}

/// Removes trailing slashes before routing (http-api 1.1).
pub fn strip_slash(mut request: Request<Body>) -> Request<Body> {
    let path = request.uri().path();
    if path.len() < 2 || !path.ends_with('/') {
        return request;
    }
    let short = path.trim_end_matches('/');
    let short = if short.is_empty() { "/" } else { short };
    let target = request.uri().query().map_or_else(|| short.to_owned(), |query| format!("{short}?{query}"));
    let mut parts = request.uri().clone().into_parts();
    if let Ok(target) = target.parse() {
        parts.path_and_query = Some(target);
        if let Ok(uri) = http::Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_slashes_are_dropped() {
        for (given, want) in [
            ("/", "/"),
            ("/a", "/a"),
            ("/a/", "/a"),
            ("/a//?q=1/", "/a?q=1/"),
            ("/a/b/", "/a/b"),
            ("//", "/"),
        ] {
            let request = Request::builder().uri(given).body(Body::empty()).unwrap();
            assert_eq!(strip_slash(request).uri().to_string(), want, "{given}");
        }
    }

    #[test]
    fn only_certain_http_requests_count_as_unencrypted() {
        let https = crate::config::Https {
            address: ([127, 0, 0, 1], 0).into(),
            certificates: Vec::new(),
            min_version: crate::config::TlsVersion::default(),
            client_ca: None,
            client_auth: crate::config::ClientAuth::default(),
        };
        let mut listening = Config::default();
        listening.listen.https = Some(https);
        let check = |config: &Config, proxy: Option<&str>, tls: bool, want: bool| {
            let mut request = Request::builder();
            if let Some(scheme) = proxy {
                request = request.header("x-forwarded-proto", scheme);
            }
            let mut request = request.body(Body::empty()).unwrap();
            if tls {
                request.extensions_mut().insert(Encrypted);
            }
            assert_eq!(is_unencrypted(config, &request), want, "{proxy:?}, TLS {tls}");
        };
        check(&listening, None, false, true);
        check(&listening, None, true, false);
        check(&listening, Some("https"), false, false);
        check(&Config::default(), None, false, false);
        check(&Config::default(), Some("HTTP"), false, true);
        check(&Config::default(), Some("https"), false, false);
    }

    #[test]
    fn keys_in_paths_are_not_logged() {
        let request =
            Request::builder().uri("/api/v2/provisionerkeys/SECRET?x=y").body(Body::empty()).unwrap();
        assert!(!loggable(&request).contains("SECRET"));
        let request = Request::builder()
            .uri("/api/v2/users/me?coder_session_token=SECRET")
            .body(Body::empty())
            .unwrap();
        assert!(!loggable(&request).contains("SECRET"));
    }
}
