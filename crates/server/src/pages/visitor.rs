//! The user at the browser, and the check that a submitted form is ours.

use http::HeaderMap;
use http::header::HeaderValue;

use crate::authn::{cookies, csrf, session, token};
use crate::context::App;
use crate::http::Caller;
use crate::http::origin::Origin;

/// The CSRF token for forms: that of the session, or a random one before the sign-in. Also its cookie, if the browser does not
/// have it.
pub(super) fn csrf_token(app: &App, headers: &HeaderMap) -> (String, Option<HeaderValue>) {
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

/// Whether a submitted form contains the CSRF token of its session, or before the sign-in that of its cookie. Forms from other
/// origins are refused earlier (`router::layers::refuse_foreign`).
pub(super) fn is_own_form(headers: &HeaderMap, submitted: &str) -> bool {
    match session::presented_by_cookie(headers) {
        Some(session) => csrf::is_token_of(&session.token, submitted),
        None => {
            let cookie = session::cookie(headers, csrf::COOKIE).unwrap_or_default();
            !submitted.is_empty() && coder_domain::key::same_secret(cookie, submitted)
        }
    }
}

/// The user who is signed in with this browser.
pub(super) async fn visitor(app: &App, headers: &HeaderMap, origin: Origin) -> Option<Caller> {
    let presented = session::presented_by_cookie(headers)?;
    session::authenticate_from(app, &presented, origin).await.ok()
}
