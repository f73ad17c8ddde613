//! Creates sessions and API tokens. A token never creates a key that lives longer or may do more: it is the parent of the new
//! key, which ends with it and has its limits. The session of a sign-in is not a parent, so that people can create tokens for CI
//! that outlive it.

use std::time::Duration;

use axum::extract::State;
use coder_api::json::ZERO_TIME;
use coder_api::tokens::{ALLOW_ALL, CreateKeyResponse, CreateTokenRequest, SCOPE_ALL};
use coder_domain::Timestamp;
use coder_domain::ids::UserId;
use coder_domain::names;
use coder_domain::rbac::scope::{self, Unknown};
use coder_domain::rbac::{Action, Scopes, SiteRole};
use coder_domain::secret::Secret;
use coder_store::users::LoginType;
use coder_store::{Tx, tokens, transaction, users};
use http::StatusCode;
use jiff::SignedDuration;

use super::object;
use crate::audit::{Event, Kind, Verb};
use crate::authn::session::signed_out;
use crate::authn::token as credential;
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, body};
use crate::routes::{random_name, users as accounts};
use accounts::takeover;

struct KeyRequest {
    user: UserId,
    login_type: LoginType,
    name: String,
    lifetime: Duration,
    scopes: Vec<String>,
    allow_list: Vec<String>,
}

/// `POST /users/{user}/keys`: another session of the same kind as the caller's.
pub async fn session(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<body::Created<CreateKeyResponse>> {
    let [name] = names.take()?;
    let user = accounts::find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    Ok(body::Created(CreateKeyResponse { key: further_session(&app, &caller, &user).await? }))
}

/// A session with the rights of the caller's key, so that a scoped token does not create an unscoped session. 403 for a key that
/// may not create keys.
pub async fn further_session(app: &App, caller: &Caller, user: &users::User) -> Result<Secret> {
    caller.require(Action::Create, object(user.id))?;
    let key = KeyRequest {
        user: user.id,
        login_type: user.login_type,
        name: String::new(),
        lifetime: app.config.sessions.default_token_lifetime,
        scopes: caller.key.scopes.clone(),
        allow_list: caller.key.allow_list.clone(),
    };
    insert_key(app, caller, user, &key).await
}

/// A key that only opens apps of workspaces, for a browser on the host of an app. It ends with the caller's key, so that a
/// log-out ends the visits of apps, too.
pub async fn app_session(app: &App, caller: &Caller) -> Result<Secret> {
    caller.require(Action::Create, object(caller.user.id))?;
    let scopes = [scope::APPLICATION_CONNECT];
    let wanted = Scopes::parse(scopes, caller.key.allow_list.iter().map(String::as_str));
    if !wanted.is_ok_and(|wanted| caller.subject.scopes.cover(&wanted)) {
        return Err(Error::forbidden());
    }
    let now = app.now();
    let left = u64::try_from(caller.key.expires_at.duration_since(now).as_secs()).unwrap_or_default();
    let lifetime = app.config.sessions.duration.min(Duration::from_secs(left.max(1)));
    let key = KeyRequest {
        user: caller.user.id,
        login_type: caller.user.login_type,
        name: String::new(),
        lifetime,
        scopes: scopes.map(str::to_owned).to_vec(),
        allow_list: caller.key.allow_list.clone(),
    };
    let not_after = caller.key.not_after.unwrap_or(caller.key.expires_at);
    transaction!(app.store, Error, |tx| {
        let parent = Parent { id: caller.key.id.clone(), not_after };
        issue(tx, &key, Some(parent), &caller.origin, now).await
    })
}

/// `POST /users/{user}/keys/tokens`
pub async fn token(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<CreateTokenRequest>,
) -> Result<body::Created<CreateKeyResponse>> {
    let [name] = names.take()?;
    let user = accounts::find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    caller.require(Action::Create, object(user.id))?;
    let lifetime = lifetime(&app, &user, request.lifetime)?;
    let (scopes, allow_list) = reach(&caller, &request)?;
    let unnamed = request.token_name.is_empty();
    let invent = || random_name::generate().replace('_', "-");
    let name = if unnamed {
        invent()
    } else {
        names::name(&request.token_name)
            .map_err(|e| Error::invalid("token_name", format!("The token name {e}.")))?;
        request.token_name
    };
    let login_type = LoginType::Token;
    let mut key = KeyRequest { user: user.id, login_type, name, lifetime, scopes, allow_list };
    loop {
        match insert_key(&app, &caller, &user, &key).await {
            // A generated name was taken.
            Err(error) if unnamed && error.status() == StatusCode::CONFLICT => key.name = invent(),
            made => return Ok(body::Created(CreateKeyResponse { key: made? })),
        }
    }
}

/// The requested lifetime. The token gets at most the remaining lifetime of its parent.
fn lifetime(app: &App, user: &users::User, nanos: i64) -> Result<Duration> {
    let longest = max_lifetime(app, user);
    let lifetime = match u64::try_from(nanos) {
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
    Ok(lifetime)
}

/// The scopes and the allow list as they are stored (scheduling-and-auth 4.7). They must not exceed those of the caller's key.
fn reach(caller: &Caller, request: &CreateTokenRequest) -> Result<(Vec<String>, Vec<String>)> {
    let named = request.scopes.iter().chain([&request.scope]).filter(|name| !name.is_empty());
    let named: Vec<&str> = named.map(String::as_str).collect();
    let allowed = request.allow_list.iter().map(String::as_str);
    let scopes = Scopes::parse(named.iter().copied(), allowed).map_err(|error| {
        let field = if matches!(error, Unknown::Scope(_)) { "scopes" } else { "allow_list" };
        Error::bad_request("Failed to validate create API key request.").field(field, error)
    })?;
    if !caller.subject.scopes.cover(&scopes) {
        return Err(Error::forbidden()
            .detail("The token you present is narrower than the one you ask for: name fewer scopes."));
    }
    let stored = |given: Vec<String>, all: &str| if given.is_empty() { vec![all.to_owned()] } else { given };
    let mut names: Vec<_> = named.into_iter().map(|name| scope::stored_name(name).to_owned()).collect();
    names.sort();
    names.dedup();
    Ok((stored(names, SCOPE_ALL), stored(request.allow_list.clone(), ALLOW_ALL)))
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

/// Opens a session after a successful login (scheduling-and-auth TOK-4). None when the account or its password has changed since
/// it was read: a new password ends the sessions of the old one.
pub async fn open_session(app: &App, user: &users::User, origin: &Origin) -> Result<Option<Secret>> {
    let key = KeyRequest {
        user: user.id,
        login_type: user.login_type,
        name: String::new(),
        lifetime: app.config.sessions.duration,
        scopes: vec![SCOPE_ALL.to_owned()],
        allow_list: vec![ALLOW_ALL.to_owned()],
    };
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        users::keep(tx, user.id).await?;
        let current = users::find(tx, user.id).await?;
        let is_same = current.is_some_and(|current| {
            current.status != users::UserStatus::Suspended
                && current.login_type == user.login_type
                && current.password_hash == user.password_hash
        });
        if !is_same {
            return Ok(None);
        }
        let token = issue(tx, &key, None, origin, now).await?;
        Event::new(Verb::Login, Kind::ApiKey, user.id.0, "").write(tx, user.id, origin, now).await?;
        Ok(Some(token))
    })
}

async fn insert_key(app: &App, caller: &Caller, user: &users::User, key: &KeyRequest) -> Result<Secret> {
    if user.is_system {
        return Err(Error::bad_request("System users cannot have keys."));
    }
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        // From here on neither a new password nor a change of roles ends keys of the caller before this transaction does.
        if user.id == caller.user.id {
            users::keep(tx, user.id).await?;
        } else {
            takeover::require_still(tx, caller, user.id).await?;
            let user = users::get(tx, user.id).await?;
            takeover::require(tx, caller, &user).await?;
        }
        if tokens::find(tx, &caller.key.id).await?.is_none() {
            return Err(revoked());
        }
        let token = issue(tx, key, Parent::of(&caller.key), &caller.origin, now).await?;
        let event = Event::new(Verb::Create, Kind::ApiKey, user.id.0, key.name.as_str())
            .change("scopes", "", &key.scopes)
            .change("allow_list", "", &key.allow_list)
            .change("lifetime_seconds", 0, key.lifetime.as_secs())
            .note("owner", user.username.as_str());
        event.by(tx, caller, now).await?;
        Ok(token)
    })
}

/// The parent of a new key, which ends with it.
struct Parent {
    id: String,
    not_after: Timestamp,
}

impl Parent {
    /// `None` for the session of a sign-in.
    fn of(key: &tokens::ApiKey) -> Option<Self> {
        let not_after = key.not_after.unwrap_or(key.expires_at);
        (!key.is_sign_in()).then(|| Self { id: key.id.clone(), not_after })
    }
}

fn revoked() -> Error {
    signed_out("The token is unknown or has been revoked.")
}

async fn issue(
    tx: &mut Tx,
    key: &KeyRequest,
    parent: Option<Parent>,
    origin: &Origin,
    now: Timestamp,
) -> Result<Secret> {
    let lifetime = SignedDuration::try_from(key.lifetime).ok();
    let ends = lifetime.and_then(|lifetime| now.checked_add(lifetime).ok());
    let ends = ends.ok_or_else(|| Error::invalid("lifetime", "The lifetime is too long."))?;
    let ends = parent.as_ref().map_or(ends, |parent| ends.min(parent.not_after));
    let token = credential::generate();
    let row = tokens::ApiKey {
        id: token.id.clone(),
        user_id: key.user,
        hashed_secret: token.hashed(),
        login_type: key.login_type,
        token_name: key.name.clone(),
        scopes: key.scopes.clone(),
        allow_list: key.allow_list.clone(),
        lifetime_seconds: ends.duration_since(now).as_secs(),
        ip_address: origin.ip(),
        created_at: now,
        updated_at: now,
        last_used_at: ZERO_TIME,
        expires_at: ends,
        not_after: parent.as_ref().map(|parent| parent.not_after),
        parent_id: parent.map(|parent| parent.id),
    };
    tokens::insert(tx, &row).await.map_err(|error| {
        // The parent was deleted meanwhile.
        if matches!(error, coder_store::Error::Reference(_)) {
            return revoked();
        }
        if error.is_conflict_on("api_keys", "token_name") {
            return Error::name_taken(format!("A token with name {:?} already exists.", key.name));
        }
        error.into()
    })?;
    Ok(token.reveal())
}
