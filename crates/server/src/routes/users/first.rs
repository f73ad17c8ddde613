//! The first user, who owns the deployment.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use coder_api::users::{CreateFirstUserRequest, CreateFirstUserResponse};
use coder_domain::ids::UserId;
use coder_domain::rbac::SiteRole;
use coder_store::{organizations, settings, transaction, users};
use http::StatusCode;

use super::create::{self, check_identity, check_password};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::origin::Origin;
use crate::http::{Error, Json, Result, WithWarnings, body};
use crate::routes::stored_only;

/// `GET /users/first`: 404 asks the client to create one.
pub async fn show(State(app): State<App>) -> Result<Response> {
    let mut tx = app.store.reader().await?;
    if users::any(&mut tx).await? {
        return Ok(body::message("The initial user has already been created!").into_response());
    }
    Err(Error::new(StatusCode::NOT_FOUND, "The initial user has not been created!"))
}

/// `POST /users/first`
pub async fn create(
    State(app): State<App>,
    origin: Origin,
    Json(request): Json<CreateFirstUserRequest, { body::PUBLIC_BYTES }>,
) -> Result<WithWarnings<body::Created<CreateFirstUserResponse>>> {
    let exists = || Error::conflict("The initial user has already been created.");
    if users::any(&mut app.store.reader().await?).await? {
        return Err(exists());
    }
    check_identity(&request.email, &request.username, &request.name)?;
    check_password(&request.password)?;
    let hash =
        app.passwords.hash(request.password).await.map_err(|e| Error::internal("Internal error.", e))?;
    let now = app.now();
    let mut user = create::row(UserId::random(), &request.email, &request.username, &request.name, now);
    user.status = users::UserStatus::Active;
    user.password_hash = Some(hash);
    user.site_roles = vec![SiteRole::Owner.as_str().to_owned()];
    let organization = app.default_organization;

    transaction!(app.store, Error, |tx| {
        // Checked again inside the transaction, so that one of two concurrent requests fails. On Postgres neither sees the
        // other's user, but one waits for the other's row in `settings`.
        let id = user.id.to_string();
        if users::any(tx).await? || settings::find_or_insert(tx, settings::FIRST_USER_ID, &id).await? != id {
            return Err(exists());
        }
        users::insert(tx, &user).await?;
        organizations::insert_member(tx, &create::membership(organization, user.id, now)).await?;
        let event = Event::new(Verb::Register, Kind::User, user.id.0, user.username.as_str());
        event.change("rbac_roles", [""; 0], &user.site_roles).write(tx, user.id, &origin, now).await?;
        Ok(())
    })?;
    tracing::info!(user_id = %user.id, username = user.username, "the first user was created");
    let warnings = if request.trial { vec![stored_only::TRIAL] } else { Vec::new() };
    let created = CreateFirstUserResponse { user_id: user.id, organization_id: organization };
    Ok(WithWarnings(body::Created(created), warnings))
}
