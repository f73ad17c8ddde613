//! Carries a sign-in from the server's own host to the hosts of apps: the server's session cookie is never sent there, so the
//! browser is redirected to the server, gets a key that only opens apps, and brings it back encrypted (agent 6.2).

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::paths;
use coder_domain::apps::SubdomainName;
use http::header::{self, HeaderValue};
use http::{HeaderMap, StatusCode};
use url::Url;
use url::form_urlencoded::{byte_serialize, parse};

use super::{Head, destination};
use crate::authn::{cookies, session};
use crate::config::Config;
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::params::Query;
use crate::http::{AccessUrl, Error, Result};
use crate::routes::keys;

/// The parameter with the encrypted key.
pub const PARAMETER: &str = "coder_application_connect_api_key_35e783";
/// What names of session cookies of apps begin with.
pub const COOKIE_PREFIX: &str = "coder_subdomain_app_session_token";

/// The name of the session cookie of apps on host names of their own.
#[must_use]
pub fn cookie_name(config: &Config) -> String {
    let hash = config.apps.wildcard.as_ref().map(coder_domain::apps::WildcardHost::hash).unwrap_or_default();
    format!("{COOKIE_PREFIX}_{hash}")
}

/// 303
pub(super) fn see_other(location: &str) -> Response {
    match HeaderValue::from_str(location) {
        Ok(location) => {
            let no_store = (header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
            (StatusCode::SEE_OTHER, [(header::LOCATION, location), no_store]).into_response()
        }
        Err(_) => Error::bad_request("The address is not valid.").into_response(),
    }
}

/// Redirects to the sign-in, and back to a path of this server.
pub fn to_login(back: &str) -> Response {
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let message = encode("You are signed out or your session has expired. Please sign in again to continue.");
    see_other(&format!("/login?message={message}&redirect={}", encode(back)))
}

/// Redirects a visitor of an app's host to the server's own host, which signs them in.
pub(super) fn to_server(app: &App, request: &Head) -> Result<Response> {
    let access = AccessUrl::of(&app.config, request.headers(), request.extensions());
    let own = own_server(app, &access)?;
    let here = address(request, &access).ok_or_else(|| Error::bad_request("The host is not valid."))?;
    let here: String = byte_serialize(here.as_bytes()).collect();
    Ok(see_other(&format!("{own}{}?redirect_uri={here}", paths::APPLICATIONS_AUTH_REDIRECT)))
}

/// The server's own URL. On the host of an app it is known only when it is configured.
fn own_server(app: &App, access: &AccessUrl) -> Result<String> {
    if app.config.access_url.is_some() {
        return Ok(access.0.clone());
    }
    Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "The server does not know its own address.")
        .detail("Apps on host names of their own need --access-url: ask an administrator."))
}

/// Redirects to the server's own pages.
pub(super) fn to_own_pages(app: &App, request: &Head) -> Result<Response> {
    let access = AccessUrl::of(&app.config, request.headers(), request.extensions());
    Ok(see_other(&format!("{}/", own_server(app, &access)?)))
}

/// The URL of a request.
fn address(request: &Head, access: &AccessUrl) -> Option<String> {
    let scheme = if access.0.starts_with("https://") { "https" } else { "http" };
    let host = destination::host(request)?;
    let path = request.uri().path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    Some(format!("{scheme}://{host}{path}"))
}

/// Whether a query has the parameter.
pub(super) fn is_in(query: Option<&str>) -> bool {
    find(query).is_some()
}

fn find(query: Option<&str>) -> Option<String> {
    let mut pairs = parse(query.unwrap_or_default().as_bytes());
    pairs.find(|(name, _)| name == PARAMETER).map(|(_, value)| value.into_owned())
}

/// Takes the encrypted key of a request to the host of an app: a cookie, and the same address without it.
pub(super) fn accept(app: &App, request: &Head) -> Result<Response> {
    let sealed = find(request.uri().query()).unwrap_or_default();
    let key = app.apps.sealer.open(&sealed, app.now()).map_err(|error| {
        Error::bad_request("The sign-in for this app has failed.")
            .detail(format!("{error}; open the app again."))
    })?;
    let access = AccessUrl::of(&app.config, request.headers(), request.extensions());
    let here = address(request, &access).and_then(|here| Url::parse(&here).ok());
    let mut here = here.ok_or_else(|| Error::bad_request("The host is not valid."))?;
    let query = request.uri().query().map(super::headers::query_without_credentials);
    here.set_query(query.as_deref().filter(|query| !query.is_empty()));
    let domain = app.config.apps.wildcard.as_ref().and_then(|wildcard| wildcard.cookie_domain());
    let cookie = cookies::app_session(&cookie_name(&app.config), key.expose(), domain, &app.config);
    let mut response = see_other(here.as_str());
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// `GET /applications/auth-redirect`: redirects a signed-in visitor back to an app, with a key that only opens apps.
pub async fn auth_redirect(
    State(app): State<App>,
    origin: Origin,
    headers: HeaderMap,
    query: Query,
    access: AccessUrl,
    uri: http::Uri,
) -> Result<Response> {
    let Some(presented) = session::presented(&headers, &uri) else { return Ok(login_and_return(&uri)) };
    let caller = match session::authenticate_from(&app, &presented, origin).await {
        Ok(caller) => caller,
        Err(error) if error.status() == StatusCode::UNAUTHORIZED => return Ok(login_and_return(&uri)),
        Err(error) => return Err(error),
    };
    let mut target = app_url(&app, &access, query.text("redirect_uri"))?;
    let key = keys::create::app_session(&app, &caller).await?;
    let sealed = app.apps.sealer.seal(&key, app.now());
    let kept =
        target.query().map(super::headers::query_without_credentials).filter(|query| !query.is_empty());
    target.set_query(kept.as_deref());
    target.query_pairs_mut().append_pair(PARAMETER, sealed.expose());
    Ok(see_other(target.as_str()))
}

fn login_and_return(uri: &http::Uri) -> Response {
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    to_login(&format!("{}{query}", paths::APPLICATIONS_AUTH_REDIRECT))
}

/// A URL of an app on this server; anything else is refused, since a key is sent there.
fn app_url(app: &App, access: &AccessUrl, text: &str) -> Result<Url> {
    let refused = |detail: &str| Error::invalid("redirect_uri", detail);
    let mut url = Url::parse(text).map_err(|_| refused("It must be the URL of an app."))?;
    let wildcard = app.config.apps.wildcard.as_ref();
    let wildcard = wildcard.ok_or_else(|| refused("This server has no host names for apps."))?;
    let label = url.host_str().and_then(|host| wildcard.label(host));
    let is_app = label.is_some_and(|label| SubdomainName::parse(label).is_ok());
    let port = wildcard.port(destination::access_port(access));
    let has_user = !url.username().is_empty() || url.password().is_some();
    if !matches!(url.scheme(), "http" | "https") || !is_app || has_user || url.port() != port {
        return Err(refused("It must be the URL of an app on this server."));
    }
    // A page that came without TLS must not receive the key when the server is reached with it.
    let scheme = if access.0.starts_with("https://") { "https" } else { "http" };
    url.set_scheme(scheme).map_err(|()| refused("It must be the URL of an app."))?;
    Ok(url)
}
