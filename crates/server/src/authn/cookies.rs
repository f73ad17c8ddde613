//! The cookies we set.

use http::header::HeaderValue;

use crate::config::{Config, SameSite};

/// The state that the browser must return with from an external authentication provider (http-api 1.4).
pub const OAUTH_STATE: &str = "oauth_state";
/// The path that the browser is redirected to afterwards.
pub const OAUTH_REDIRECT: &str = "oauth_redirect";
/// The PKCE verifier: it proves that the browser that returns with a code started the login.
pub const OAUTH_VERIFIER: &str = "oauth_pkce_verifier";

/// Sets one of the cookies of the OAuth redirect. An empty value removes it.
pub fn oauth(name: &str, value: &str, config: &Config) -> Option<HeaderValue> {
    let lifetime = if value.is_empty() { "; Max-Age=0" } else { "; Max-Age=900" };
    write(name, value, "/", true, config, lifetime)
}

/// Sets the session cookie.
pub fn session(token: &str, config: &Config) -> Option<HeaderValue> {
    write(coder_api::headers::SESSION_COOKIE, token, "/", true, config, "")
}

/// Sets the cookie whose value our pages repeat in a header.
pub fn csrf(token: &str, config: &Config) -> Option<HeaderValue> {
    write(crate::authn::csrf::COOKIE, token, "/", false, config, "")
}

/// Sets the cookie of a signed app token, for the path of its app only.
pub fn signed_app_token(
    name: &str,
    token: &str,
    path: &str,
    seconds: i64,
    config: &Config,
) -> Option<HeaderValue> {
    write(name, token, path, true, config, &format!("; Max-Age={seconds}"))
}

/// Sets the session cookie of apps on host names of their own, for all hosts of `domain` if there is one. The key in the
/// database has an end, so the cookie needs none.
pub fn app_session(name: &str, token: &str, domain: Option<&str>, config: &Config) -> Option<HeaderValue> {
    let domain = domain.map(|domain| format!("; Domain={domain}")).unwrap_or_default();
    write(name, token, "/", true, config, &domain)
}

/// Removes the session cookie.
pub fn clear_session(config: &Config) -> Option<HeaderValue> {
    write(coder_api::headers::SESSION_COOKIE, "", "/", true, config, "; Max-Age=0")
}

fn write(
    name: &str,
    value: &str,
    path: &str,
    http_only: bool,
    config: &Config,
    more: &str,
) -> Option<HeaderValue> {
    let same_site = match config.sessions.same_site {
        SameSite::Lax => "Lax",
        SameSite::None => "None",
    };
    let http_only = if http_only { "; HttpOnly" } else { "" };
    let secure = if config.has_secure_cookies() { "; Secure" } else { "" };
    HeaderValue::from_str(&format!(
        "{name}={value}; Path={path}{http_only}{secure}; SameSite={same_site}{more}"
    ))
    .ok()
}
