//! The few HTML pages: home, sign-in, a session token for the command line, and accounts elsewhere.

mod cli_auth;
mod error;
mod external_auth;
mod form;
mod home;
mod local;
mod login;

pub use cli_auth::{make as make_cli_token, show as cli_auth};
pub use error::{as_page, wants_page};
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
use crate::http::{Error, csrf};

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

/// The token that forms repeat: that of the session, or before there is one a random one. Also its cookie, if the browser
/// does not have it.
fn csrf(app: &App, headers: &HeaderMap) -> (String, Option<HeaderValue>) {
    let present = session::cookie(headers, csrf::COOKIE);
    let token = match session::presented_by_cookie(headers) {
        Some(session) => csrf::token(&session.token),
        None => match present.filter(|text| text.len() == 32) {
            Some(present) => present.to_owned(),
            None => token::nonce().expose().to_owned(),
        },
    };
    let cookie = if present == Some(&token) { None } else { cookies::csrf(&token, &app.config) };
    (token, cookie)
}

/// Whether a submitted form repeats the token of its session, or without one that of its cookie. That another origin's page
/// submits it is refused before (`http::layers::refuse_foreign`).
fn is_own_form(headers: &HeaderMap, submitted: &str) -> bool {
    match session::presented_by_cookie(headers) {
        Some(session) => csrf::is_token_of(&session.token, submitted),
        None => {
            let cookie = session::cookie(headers, csrf::COOKIE).unwrap_or_default();
            !submitted.is_empty() && coder_domain::key::same_secret(cookie, submitted)
        }
    }
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
