//! Errors as pages, for browsers.

use askama::Template;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};

use super::render::render;
use crate::http::error::ErrorText;

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    title: &'a str,
    message: &'a str,
    detail: &'a str,
}

/// Whether a request accepts HTML. Browsers do, clients of the API do not.
pub fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_html = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
        let is_refused = parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"));
        is_html && !is_refused
    })
}

/// Renders an error response as a page, with the same status and headers. Other responses stay as they are.
pub fn as_page(response: Response) -> Response {
    let Some(ErrorText { message, detail }) = response.extensions().get::<ErrorText>() else {
        return response;
    };
    let title = match response.status() {
        StatusCode::NOT_FOUND => "Page not found",
        status => status.canonical_reason().unwrap_or("Error"),
    };
    let page = match render(response.status(), &ErrorPage { title, message, detail }) {
        Ok(page) => page,
        Err(error) => return error.into_response(),
    };
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let (page, body) = page.into_parts();
    parts.headers.extend(page.headers);
    parts.headers.insert(header::VARY, HeaderValue::from_static("Accept, Origin, Cookie"));
    Response::from_parts(parts, Body::new(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_ask_for_pages() {
        let wants = |accept: &'static str| {
            wants_page(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
        };
        assert!(wants("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"));
        assert!(wants("application/json, Text/HTML;q=0.5"));
        for client in ["", "*/*", "application/json", "text/html;q=0", "text/plain"] {
            assert!(!wants(client), "{client}");
        }
        assert!(!wants_page(&HeaderMap::new()));
    }
}
