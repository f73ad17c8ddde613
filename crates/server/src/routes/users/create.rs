//! Making accounts.

use axum::extract::State;
use coder_api::users::{CreateUserRequest, LoginType, User, UserStatus};
use coder_domain::Timestamp;
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::rbac::{Action, Resource};
use coder_domain::secret::Secret;
use coder_domain::{names, password};
use coder_store::{organizations, transaction, users};

use super::{takeover, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::{Caller, Error, Json, Result, body};

/// `POST /users`
pub async fn create(
    State(app): State<App>,
    caller: Caller,
    Json(request): Json<CreateUserRequest>,
) -> Result<body::Created<User>> {
    caller.require_site(Action::Create, Resource::User)?;
    takeover::require_unlimited(&caller)?;
    check_identity(&request.email, &request.username, &request.name)?;
    let mut wanted: Vec<_> = request.organization_ids.into_iter().chain(request.organization_id).collect();
    if wanted.is_empty() {
        return Err(Error::invalid("organization_ids", "At least one organization is required."));
    }
    for id in &mut wanted {
        if id.is_nil() {
            *id = app.default_organization;
        }
    }
    wanted.sort();
    wanted.dedup();
    let login_type = match request.login_type {
        LoginType::Unset if request.disable_login => users::LoginType::None,
        LoginType::Unset | LoginType::Password => users::LoginType::Password,
        LoginType::None => users::LoginType::None,
        other => {
            return Err(Error::invalid(
                "login_type",
                format!("{other:?} log-in is not set up on this server."),
            ));
        }
    };
    let hash = if login_type == users::LoginType::Password {
        check_password(&request.password)?;
        Some(app.passwords.hash(request.password).await.map_err(|e| Error::internal("Internal error.", e))?)
    } else if request.password.expose().is_empty() {
        None
    } else {
        return Err(Error::invalid("password", "A password needs the login type \"password\"."));
    };
    let status = request.user_status.unwrap_or(UserStatus::Dormant);
    let status: users::UserStatus = status
        .as_str()
        .parse()
        .map_err(|_| Error::invalid("user_status", format!("{status} is not a user status.")))?;

    let now = app.now();
    let mut user = row(UserId::random(), &request.email, &request.username, &request.name, now);
    user.status = status;
    user.login_type = login_type;
    user.password_hash = hash;
    transaction!(app.store, Error, |tx| {
        for organization in &wanted {
            if !organizations::keep(tx, *organization).await? {
                return Err(Error::new(http::StatusCode::NOT_FOUND, "Organization does not exist."));
            }
        }
        users::insert(tx, &user).await.map_err(taken)?;
        for organization in &wanted {
            organizations::insert_member(tx, &membership(*organization, user.id, now)).await?;
        }
        Event::new(Verb::Create, Kind::User, user.id.0, user.username.as_str())
            .change("email", "", &user.email)
            .change("login_type", "", user.login_type.as_str())
            .change("status", "", user.status.as_str())
            .by(tx, &caller, now)
            .await?;
        for organization in &wanted {
            Event::new(Verb::Create, Kind::Member, user.id.0, user.username.as_str())
                .in_organization(*organization)
                .by(tx, &caller, now)
                .await?;
        }
        Ok(())
    })?;
    Ok(body::Created(view::user(&user, wanted)))
}

/// An account without password and roles.
pub fn row(id: UserId, email: &str, username: &str, name: &str, now: Timestamp) -> users::User {
    users::User {
        id,
        username: username.to_owned(),
        email: email.to_lowercase(),
        name: name.trim().to_owned(),
        avatar_url: String::new(),
        theme_preference: String::new(),
        status: users::UserStatus::Dormant,
        login_type: users::LoginType::Password,
        password_hash: None,
        site_roles: Vec::new(),
        is_system: false,
        created_at: now,
        updated_at: now,
        last_seen_at: None,
    }
}

/// A plain membership.
pub fn membership(organization_id: OrganizationId, user_id: UserId, now: Timestamp) -> organizations::Member {
    organizations::Member { organization_id, user_id, roles: Vec::new(), created_at: now, updated_at: now }
}

/// Checks the user name, the names and the e-mail address.
pub fn check_identity(email: &str, username: &str, name: &str) -> Result<()> {
    if !names::email(email) {
        return Err(Error::invalid("email", "This is not an e-mail address."));
    }
    names::user(username).map_err(|error| Error::invalid("username", format!("The user name {error}.")))?;
    names::real_name(name.trim()).map_err(|error| Error::invalid("name", format!("The name {error}.")))
}

/// Checks a new password's strength (scheduling-and-auth PWD-2).
pub fn check_password(password: &Secret) -> Result<()> {
    if password.expose().is_empty() {
        return Err(Error::invalid("password", "A password is required."));
    }
    password::validate(password.expose())
        .map_err(|error| Error::bad_request("Password not strong enough!").field("password", error))
}

/// 409 for a user name or e-mail address of another account.
pub fn taken(error: coder_store::Error) -> Error {
    for (column, field) in [("username_lower", "username"), ("email_lower", "email")] {
        if error.is_conflict_on("users", column) {
            return Error::conflict("User already exists.")
                .field(field, "This value is already in use and should be unique.");
        }
    }
    error.into()
}
