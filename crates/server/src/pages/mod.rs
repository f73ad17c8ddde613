//! The few HTML pages: home, sign-in, a session token for the command line, and accounts elsewhere.

mod cli_auth;
mod external_auth;
mod form;
mod home;
mod login;

pub use cli_auth::{make as make_cli_token, show as cli_auth};
pub use external_auth::{
    callback as external_auth_callback, show as external_auth, submit as submit_external_auth,
};
pub use home::home;
pub use login::{show as login, submit as submit_login};

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};

use crate::audit::Origin;
use crate::authn::{cookies, session, token};
use crate::context::App;
use crate::http::Error;

/// Renders a page. Pages load nothing and may not be framed or cached.
fn render(status: StatusCode, page: &impl Template) -> Result<Response, Error> {
    let text = page.render().map_err(|error| Error::internal("The page could not be rendered.", error))?;
    let mut response = (status, Html(text)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    let policy = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'";
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    Ok(response)
}

/// The token that forms repeat: the one of the cookie, or a fresh one together with its cookie.
fn csrf(app: &App, headers: &HeaderMap) -> (String, Option<HeaderValue>) {
    if let Some(present) = session::cookie(headers, crate::http::csrf::COOKIE).filter(|text| text.len() == 32)
    {
        return (present.to_owned(), None);
    }
    let fresh = token::csrf();
    let cookie = cookies::csrf(fresh.expose(), &app.config.sessions);
    (fresh.expose().to_owned(), cookie)
}

/// Whether a submitted form repeats the token of its cookie.
fn is_own_form(headers: &HeaderMap, submitted: &str) -> bool {
    let cookie = session::cookie(headers, crate::http::csrf::COOKIE).unwrap_or_default();
    !submitted.is_empty() && coder_domain::key::same_secret(cookie, submitted)
}

fn with_cookie(mut response: Response, cookie: Option<HeaderValue>) -> Response {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

/// Who is signed in with this browser, if anybody.
async fn visitor(app: &App, headers: &HeaderMap, origin: Origin) -> Option<crate::http::Caller> {
    let presented = session::presented_by_cookie(headers)?;
    session::authenticate_from(app, &presented, origin).await.ok()
}
