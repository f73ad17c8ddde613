//! External authentication in a browser: the redirect to the provider, the callback with a code, and a page with the result.

use askama::Template;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Redirect, Response};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use coder_api::paths;
use coder_domain::external_auth::{Flow, Provider};
use coder_domain::key::same_secret;
use coder_domain::rbac::Action;
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest as _, Sha256};
use url::Url;

use super::form::Form;
use super::local::local_path;
use super::render::{render, with_cookie};
use super::visitor::{csrf_token, is_own_form, visitor};
use crate::authn::{cookies, session, token};
use crate::context::App;
use crate::external_auth::{self, DeviceCode, OAuthClient};
use crate::http::origin::Origin;
use crate::http::params::{Names, Query};
use crate::http::{AccessUrl, Caller, Error};
use crate::routes::external_auth as routes;

#[derive(Template)]
#[template(path = "external_auth.html")]
struct ExternalAuthPage<'a> {
    name: &'a str,
    again: &'a str,
    refusal: &'a str,
    csrf: &'a str,
    device: Option<&'a DeviceCode>,
}

/// A request of a signed-in user for the page of a provider.
struct Visit<'a> {
    provider: &'a Provider,
    oauth_client: &'a OAuthClient,
    caller: Caller,
}

/// Opens a page: finds the provider and the signed-in user. Without one, the inner error redirects to the sign-in and back.
async fn open<'a>(
    app: &'a App,
    headers: &HeaderMap,
    origin: Origin,
    names: Names,
) -> Result<Result<Visit<'a>, Response>, Error> {
    let [id] = names.take()?;
    let (provider, oauth_client) = app.external_auth.find(&id).ok_or_else(Error::not_found)?;
    let Some(caller) = visitor(app, headers, origin).await else {
        let here = paths::external_auth_page(&provider.id);
        let here: String = url::form_urlencoded::byte_serialize(here.as_bytes()).collect();
        return Ok(Err(Redirect::to(&format!("/login?redirect={here}")).into_response()));
    };
    routes::require(&caller, Action::UpdatePersonal)?;
    Ok(Ok(Visit { provider, oauth_client, caller }))
}

/// `GET /external-auth/{id}`: redirects to the provider, unless the account is connected.
pub async fn show(
    State(app): State<App>,
    origin: Origin,
    headers: HeaderMap,
    url: AccessUrl,
    names: Names,
    query: Query,
) -> Result<Response, Error> {
    let Visit { provider, oauth_client, caller } = match open(&app, &headers, origin, names).await? {
        Ok(visit) => visit,
        Err(response) => return Ok(response),
    };
    if external_auth::is_connected(&app, caller.user.id, provider).await? {
        return page(StatusCode::OK, provider, "");
    }
    start(&app, &headers, &url, provider, oauth_client, query.text("redirect")).await
}

/// `GET /external-auth/{id}/callback`: where the provider redirects the browser. Without a code it starts the redirect.
pub async fn callback(
    State(app): State<App>,
    origin: Origin,
    headers: HeaderMap,
    url: AccessUrl,
    names: Names,
    query: Query,
) -> Result<Response, Error> {
    let Visit { provider, oauth_client, caller } = match open(&app, &headers, origin, names).await? {
        Ok(visit) => visit,
        Err(response) => return Ok(response),
    };
    let (code, error) = (query.text("code"), query.text("error"));
    if (code.is_empty() && error.is_empty()) || provider.is_device() {
        return start(&app, &headers, &url, provider, oauth_client, query.text("redirect")).await;
    }
    let expected = session::cookie(&headers, cookies::OAUTH_STATE).unwrap_or_default();
    if !is_own_state(&headers, provider, expected) || !same_secret(expected, query.text("state")) {
        return page(
            StatusCode::BAD_REQUEST,
            provider,
            "This answer belongs to another attempt. Please try again.",
        );
    }
    let outcome = if error.is_empty() {
        let verifier = session::cookie(&headers, cookies::OAUTH_VERIFIER).unwrap_or_default();
        oauth_client.redeem(provider, code, &callback_url(&url, provider), verifier).await
    } else {
        Err(external_auth::Error::Refused("you did not agree, or may not".to_owned()))
    };
    let response = match outcome {
        Ok(grant) => {
            external_auth::connect(&app, caller.user.id, provider, grant).await?;
            tracing::info!(user_id = %caller.user.id, provider = provider.id, "external authentication account connected");
            let redirect = session::cookie(&headers, cookies::OAUTH_REDIRECT).unwrap_or_default();
            let redirect =
                url::form_urlencoded::parse(redirect.as_bytes()).next().map(|(path, _)| path.into_owned());
            let back = paths::external_auth_page(&provider.id);
            let redirect = redirect.as_deref().and_then(local_path).filter(|path| path != "/");
            Redirect::to(redirect.as_deref().unwrap_or(&back)).into_response()
        }
        Err(error @ external_auth::Error::Refused(_)) => {
            page(StatusCode::BAD_REQUEST, provider, &error.to_string())?
        }
        Err(error @ external_auth::Error::Unavailable(_)) => {
            page(StatusCode::BAD_GATEWAY, provider, &error.to_string())?
        }
    };
    let used = [cookies::OAUTH_STATE, cookies::OAUTH_VERIFIER, cookies::OAUTH_REDIRECT];
    let config = &app.config;
    Ok(used.iter().fold(response, |response, name| with_cookie(response, cookies::oauth(name, "", config))))
}

/// `POST /external-auth/{id}`: the device code was typed in.
pub async fn submit(State(app): State<App>, names: Names, request: Request) -> Result<Response, Error> {
    let headers = request.headers().clone();
    let origin = Origin::of(request.extensions(), &headers);
    let Visit { provider, oauth_client, caller } = match open(&app, &headers, origin, names).await? {
        Ok(visit) => visit,
        Err(response) => return Ok(response),
    };
    let form = Form::read(request).await?;
    if !provider.is_device() || !is_own_form(&headers, form.get("csrf_token")) {
        return Ok(Redirect::to(&paths::external_auth_page(&provider.id)).into_response());
    }
    match oauth_client.redeem_device(provider, form.get("device_code")).await {
        Ok(grant) => {
            external_auth::connect(&app, caller.user.id, provider, grant).await?;
            Ok(Redirect::to(&paths::external_auth_page(&provider.id)).into_response())
        }
        Err(external_auth::Error::Refused(word))
            if word == "authorization_pending" || word == "slow_down" =>
        {
            let device = DeviceCode {
                device_code: form.get("device_code").to_owned(),
                user_code: form.get("user_code").to_owned(),
                verification_uri: address(form.get("verification_uri")),
                expires_in: 0,
                interval: 0,
            };
            let (csrf, cookie) = csrf_token(&app, &headers);
            let refusal = "The provider has not seen the code yet.";
            let page = ExternalAuthPage {
                name: &provider.display_name,
                again: "",
                refusal,
                csrf: &csrf,
                device: Some(&device),
            };
            Ok(with_cookie(render(StatusCode::OK, &page)?, cookie))
        }
        Err(error) => page(StatusCode::BAD_REQUEST, provider, &error.to_string()),
    }
}

/// Redirects the browser to the provider, or shows a device code.
async fn start(
    app: &App,
    headers: &HeaderMap,
    url: &AccessUrl,
    provider: &Provider,
    oauth_client: &OAuthClient,
    redirect: &str,
) -> Result<Response, Error> {
    let auth_url = match &provider.flow {
        Flow::Browser { auth_url } => auth_url,
        Flow::Device { code_url } => {
            let device = match oauth_client.device(provider, code_url).await {
                Ok(device) => device,
                Err(error) => return page(StatusCode::BAD_GATEWAY, provider, &error.to_string()),
            };
            let device = DeviceCode { verification_uri: address(&device.verification_uri), ..device };
            let (csrf, cookie) = csrf_token(app, headers);
            let page = ExternalAuthPage {
                name: &provider.display_name,
                again: "",
                refusal: "",
                csrf: &csrf,
                device: Some(&device),
            };
            return Ok(with_cookie(render(StatusCode::OK, &page)?, cookie));
        }
    };
    let state = state(headers, provider, token::nonce().expose());
    let verifier = format!("{}{}", token::nonce().expose(), token::nonce().expose());
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
    let mut target: Url = auth_url.clone();
    target
        .query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", &provider.client_id)
        .append_pair("redirect_uri", &callback_url(url, provider))
        .append_pair("state", &state)
        .append_pair("code_challenge", &challenge)
        .append_pair("code_challenge_method", "S256");
    if !provider.scopes.is_empty() {
        target.query_pairs_mut().append_pair("scope", &provider.scopes.join(" "));
    }
    let redirect: String = url::form_urlencoded::byte_serialize(redirect.as_bytes()).collect();
    let config = &app.config;
    let mut response = Redirect::to(target.as_str()).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    let set = [
        (cookies::OAUTH_STATE, state.as_str()),
        (cookies::OAUTH_VERIFIER, &verifier),
        (cookies::OAUTH_REDIRECT, &redirect),
    ];
    Ok(set
        .iter()
        .fold(response, |response, (name, value)| with_cookie(response, cookies::oauth(name, value, config))))
}

/// The OAuth state. It contains the provider's id, so that the callback of one provider is not accepted for another, and a MAC
/// under the session, so that the callback of another user is not accepted, even if another origin sets the cookie.
fn state(headers: &HeaderMap, provider: &Provider, nonce: &str) -> String {
    let session = session::presented_by_cookie(headers).map(|presented| presented.token);
    let text = format!("{}.{nonce}", provider.id);
    let bound = session.map(|session| token::bound(&session, "oauth state", &text)).unwrap_or_default();
    format!("{text}.{bound}")
}

/// Whether [`state`] created it for this session and provider.
fn is_own_state(headers: &HeaderMap, provider: &Provider, given: &str) -> bool {
    let nonce = given.strip_prefix(&format!("{}.", provider.id)).and_then(|rest| rest.split_once('.'));
    nonce.is_some_and(|(nonce, _)| same_secret(&state(headers, provider, nonce), given))
}

/// The callback URL, which is registered with the provider.
fn callback_url(url: &AccessUrl, provider: &Provider) -> String {
    format!("{}{}", url.0, paths::external_auth_callback(&provider.id))
}

/// A URL that may be a link in a page; empty otherwise.
fn address(text: &str) -> String {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.map(String::from).unwrap_or_default()
}

fn page(status: StatusCode, provider: &Provider, refusal: &str) -> Result<Response, Error> {
    let again = paths::external_auth_callback(&provider.id);
    render(
        status,
        &ExternalAuthPage { name: &provider.display_name, again: &again, refusal, csrf: "", device: None },
    )
}
