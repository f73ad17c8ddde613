//! The caller's external authentication accounts, and connecting one with a device code. The OAuth redirect of browsers is in
//! `pages/external_auth.rs`.

use axum::extract::State;
use coder_api::external_auth::{
    ExternalAuth, ExternalAuthDeleted, ExternalAuthDevice, ExternalAuthDeviceExchange, ExternalAuthLink,
    ExternalAuthProvider, ExternalAuths,
};
use coder_domain::external_auth::{Flow, Provider};
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::external_auth_links as links;
use futures_util::future::try_join_all;
use http::StatusCode;
use url::Url;

use crate::context::App;
use crate::external_auth::{self, Error as ProviderError, OAuthClient};
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, NoContent, Result};

/// 403 unless the caller may do this with their own account.
pub fn require(caller: &Caller, action: Action) -> Result<()> {
    caller.require(action, Object::site(Resource::User).owned_by(caller.user.id))
}

fn find(app: &App, names: Names) -> Result<(&Provider, &OAuthClient)> {
    let [id] = names.take()?;
    app.external_auth.find(&id).ok_or_else(Error::not_found)
}

/// `GET /external-auth`
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<ExternalAuths>> {
    require(&caller, Action::ReadPersonal)?;
    let known = links::list_providers(&mut app.store.reader().await?, caller.user.id).await?;
    let providers = app.external_auth.providers();
    let connected = providers.iter().filter(|provider| known.contains(&provider.id));
    let links = try_join_all(connected.map(|provider| link(&app, &caller, provider))).await?;
    let view = |provider: &Provider| ExternalAuthProvider {
        id: provider.id.clone(),
        kind: provider.kind.clone(),
        device: provider.is_device(),
        display_name: provider.display_name.clone(),
        display_icon: provider.display_icon.clone(),
        allow_refresh: !provider.no_refresh,
        allow_validate: provider.validate_url.is_some(),
    };
    let links = links.into_iter().flatten().collect();
    Ok(Json(ExternalAuths { providers: providers.iter().map(view).collect(), links }))
}

async fn link(app: &App, caller: &Caller, provider: &Provider) -> Result<Option<ExternalAuthLink>> {
    let authenticated = external_auth::is_connected(app, caller.user.id, provider).await?;
    let link = external_auth::known(app, caller.user.id, &provider.id).await?;
    Ok(link.map(|link| ExternalAuthLink {
        provider_id: link.provider_id,
        created_at: link.created_at,
        updated_at: link.updated_at,
        has_refresh_token: !link.tokens.refresh.expose().is_empty(),
        expires: link.tokens.expires_at,
        authenticated,
        validate_error: link.refresh_failure,
    }))
}

/// `GET /external-auth/{id}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<ExternalAuth>> {
    require(&caller, Action::ReadPersonal)?;
    let (provider, _) = find(&app, names)?;
    Ok(Json(ExternalAuth {
        authenticated: external_auth::is_connected(&app, caller.user.id, provider).await?,
        device: provider.is_device(),
        display_name: provider.display_name.clone(),
        ..ExternalAuth::default()
    }))
}

/// `DELETE /external-auth/{id}`: deletes the stored token. The provider is not notified.
pub async fn delete(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<ExternalAuthDeleted>> {
    require(&caller, Action::UpdatePersonal)?;
    let [id] = names.take()?;
    // The provider need not be configured any more.
    if !links::delete(&mut app.store.single().await?, caller.user.id, &id).await? {
        return Err(Error::not_found());
    }
    Ok(Json(ExternalAuthDeleted::default()))
}

/// `GET /external-auth/{id}/device`
pub async fn device(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<ExternalAuthDevice>> {
    require(&caller, Action::UpdatePersonal)?;
    let (provider, oauth_client) = find(&app, names)?;
    let code = oauth_client.device(provider, code_url(provider)?).await;
    let code = code.map_err(|error| refused("Failed to authorize device.", &error))?;
    Ok(Json(ExternalAuthDevice {
        device_code: code.device_code,
        user_code: code.user_code,
        verification_uri: code.verification_uri,
        expires_in: code.expires_in,
        interval: code.interval,
    }))
}

/// `POST /external-auth/{id}/device`: 400 with the detail `authorization_pending` until the code was typed in.
pub async fn redeem_device(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<ExternalAuthDeviceExchange>,
) -> Result<NoContent> {
    require(&caller, Action::UpdatePersonal)?;
    let (provider, oauth_client) = find(&app, names)?;
    code_url(provider)?;
    let grant = oauth_client.redeem_device(provider, &request.device_code).await;
    let grant = grant.map_err(|error| refused("Failed to exchange device code.", &error))?;
    external_auth::connect(&app, caller.user.id, provider, grant).await?;
    Ok(NoContent)
}

fn code_url(provider: &Provider) -> Result<&Url> {
    match &provider.flow {
        Flow::Device { code_url } => Ok(code_url),
        Flow::Browser { .. } => {
            Err(Error::bad_request("External auth provider does not support device flow."))
        }
    }
}

/// 400 with the provider's error code, 502 when it is unavailable.
fn refused(message: &str, error: &ProviderError) -> Error {
    match error {
        ProviderError::Refused(word) => Error::bad_request(message).detail(word),
        ProviderError::Unavailable(_) => Error::new(StatusCode::BAD_GATEWAY, message).detail(error),
    }
}
