//! Making sessions and API tokens.

use std::time::Duration;

use axum::extract::{Extension, State};
use coder_api::json::ZERO_TIME;
use coder_api::tokens::{ALLOW_ALL, CreateTokenRequest, NewKey, SCOPE_ALL};
use coder_domain::ids::UserId;
use coder_domain::names;
use coder_domain::rbac::{Action, SiteRole};
use coder_domain::secret::Secret;
use coder_store::users::LoginType;
use coder_store::{tokens, users};
use jiff::SignedDuration;

use super::object;
use crate::authn::token as credential;
use crate::context::App;
use crate::http::params::Names;
use crate::http::peer::Peer;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::{random_name, users as accounts};

/// `POST /users/{user}/keys`: another session of the same kind as the caller's.
pub async fn session(
    State(app): State<App>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    names: Names,
) -> Result<body::Created<NewKey>> {
    let [name] = names.take()?;
    let user = accounts::find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    caller.require(Action::Create, object(user.id))?;
    let lifetime = app.config.sessions.default_token_lifetime;
    let key = issue(&app, user.id, user.login_type, "", lifetime, peer).await?;
    Ok(body::Created(NewKey { key }))
}

/// `POST /users/{user}/keys/tokens`
pub async fn token(
    State(app): State<App>,
    caller: Caller,
    Extension(peer): Extension<Peer>,
    names: Names,
    Json(request): Json<CreateTokenRequest>,
) -> Result<body::Created<NewKey>> {
    let [name] = names.take()?;
    let user = accounts::find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    caller.require(Action::Create, object(user.id))?;
    check_scope(&request)?;
    let name = if request.token_name.is_empty() {
        random_name::generate().replace('_', "-")
    } else {
        names::name(&request.token_name)
            .map_err(|e| Error::invalid("token_name", format!("The token name {e}.")))?;
        request.token_name
    };
    let longest = max_lifetime(&app, &user);
    let lifetime = match u64::try_from(request.lifetime) {
        Ok(0) => app.config.sessions.default_token_lifetime.min(longest),
        Ok(nanos) => Duration::from_nanos(nanos),
        Err(_) => return Err(Error::invalid("lifetime", "A lifetime cannot be negative.")),
    };
    if lifetime > longest {
        return Err(Error::bad_request("Failed to validate create API key request.")
            .field("lifetime", format!("The lifetime must be at most {} hours.", longest.as_secs() / 3600)));
    }
    if lifetime < Duration::from_secs(1) {
        return Err(Error::invalid("lifetime", "The lifetime must be at least one second."));
    }
    let key = issue(&app, user.id, LoginType::Token, &name, lifetime, peer).await?;
    Ok(body::Created(NewKey { key }))
}

/// Tokens that may do less than their owner are refused rather than made too strong.
fn check_scope(request: &CreateTokenRequest) -> Result<()> {
    let narrow = |scope: &&String| !matches!(scope.as_str(), "" | "all" | SCOPE_ALL);
    if let Some(scope) = request.scopes.iter().chain([&request.scope]).find(narrow) {
        return Err(Error::invalid(
            "scopes",
            format!("The scope {scope:?} is not supported, leave it out or use {SCOPE_ALL:?}."),
        ));
    }
    if let Some(entry) = request.allow_list.iter().find(|entry| *entry != ALLOW_ALL) {
        return Err(Error::invalid(
            "allow_list",
            format!("The entry {entry:?} is not supported, leave it out."),
        ));
    }
    Ok(())
}

/// The longest lifetime of a user's tokens; shorter for owners (scheduling-and-auth TOK-6).
pub fn max_lifetime(app: &App, user: &users::User) -> Duration {
    let sessions = &app.config.sessions;
    if user.site_roles.iter().any(|role| role == SiteRole::Owner.as_str()) {
        sessions.max_admin_token_lifetime.min(sessions.max_token_lifetime)
    } else {
        sessions.max_token_lifetime
    }
}

/// Opens a session (scheduling-and-auth TOK-4).
pub async fn open_session(app: &App, user: UserId, login_type: LoginType, peer: Peer) -> Result<Secret> {
    issue(app, user, login_type, "", app.config.sessions.duration, peer).await
}

async fn issue(
    app: &App,
    user: UserId,
    login_type: LoginType,
    name: &str,
    lifetime: Duration,
    peer: Peer,
) -> Result<Secret> {
    let now = app.now();
    let ends = SignedDuration::try_from(lifetime).ok().and_then(|lifetime| now.checked_add(lifetime).ok());
    let token = credential::generate();
    let row = tokens::ApiKey {
        id: token.id.clone(),
        user_id: user,
        hashed_secret: token.hashed(),
        login_type,
        token_name: name.to_owned(),
        scopes: vec![SCOPE_ALL.to_owned()],
        allow_list: vec![ALLOW_ALL.to_owned()],
        lifetime_seconds: i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX),
        ip_address: peer.address.to_string(),
        created_at: now,
        updated_at: now,
        last_used_at: ZERO_TIME,
        expires_at: ends.ok_or_else(|| Error::invalid("lifetime", "The lifetime is too long."))?,
    };
    let taken = |error: coder_store::Error| {
        if error.is_conflict_on("api_keys", "token_name") {
            return Error::conflict(format!("A token with name {name:?} already exists."))
                .field("name", "This value is already in use and should be unique.");
        }
        error.into()
    };
    tokens::insert(&mut app.store.single().await?, &row).await.map_err(taken)?;
    Ok(token.reveal())
}
