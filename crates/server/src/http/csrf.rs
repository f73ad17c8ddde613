//! Protection of browser sessions: a cookie alone does not change anything (http-api 2.1).

use axum::extract::Request;
use http::{Method, StatusCode, header};

use super::error::Error;
use crate::authn::session::{Carrier, Presented};

/// Carries the token that proves a request came from one of our own pages.
pub const HEADER: &str = "x-csrf-token";
/// Holds the same token.
pub const COOKIE: &str = "csrf_token";

/// Refuses a mutating request whose only credential is the cookie, unless it repeats the token of the CSRF cookie
/// and a browser does not say that it comes from another site.
pub fn check(request: &Request, presented: &Presented) -> Result<(), Error> {
    let safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    if safe || presented.carrier != Carrier::Cookie || presented.repeated || is_exempt(request.uri().path()) {
        return Ok(());
    }
    let cookie = crate::authn::session::cookie(request.headers(), COOKIE);
    let header = request.headers().get(HEADER).and_then(|value| value.to_str().ok());
    let same = match (cookie, header) {
        (Some(cookie), Some(header)) => !header.is_empty() && coder_domain::key::same_secret(cookie, header),
        _ => false,
    };
    let site = request.headers().get("sec-fetch-site").map(header::HeaderValue::as_bytes);
    let foreign = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    if same && !foreign {
        return Ok(());
    }
    Err(Error::new(
        StatusCode::BAD_REQUEST,
        "Something is wrong with your CSRF token. Please refresh the page. If this error persists, try clearing your cookies.",
    ))
}

fn is_exempt(path: &str) -> bool {
    path == "/api/v2/users/first"
        || path.starts_with("/api/v2/workspaceagents/")
        || path.contains("/provisionerdaemons/")
}
