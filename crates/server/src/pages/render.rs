//! Pages as responses.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::http::Error;

/// What pages may load: nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'";

/// Renders a page. Pages load no other resources and may not be framed or cached.
pub(super) fn render(status: StatusCode, page: &impl Template) -> Result<Response, Error> {
    render_with(status, page, POLICY)
}

/// Renders a page with a policy of its own of what it may load.
pub(super) fn render_with(
    status: StatusCode,
    page: &impl Template,
    policy: &'static str,
) -> Result<Response, Error> {
    let text = page.render().map_err(|error| Error::internal("The page could not be rendered.", error))?;
    let mut response = (status, Html(text)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    Ok(response)
}

/// Adds a cookie, if there is one to set.
pub(super) fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}
