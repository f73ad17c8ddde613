//! Changing a password.

use axum::extract::State;
use coder_api::users::UpdatePasswordRequest;
use coder_domain::rbac::Action;
use coder_store::{sessions, transaction, users};

use super::create::check_password;
use super::find;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::provisioning::revoke;

/// `PUT /users/{user}/password`: one's own with the old one; other people's with the right to update accounts.
/// Every session of the account ends, except the caller's own, and with it the daemons that joined with it.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdatePasswordRequest>,
) -> Result<NoContent> {
    let [name] = names.take()?;
    let user = find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    let own = user.id == caller.user.id;
    caller.require(if own { Action::UpdatePersonal } else { Action::Update }, find::object(&user))?;
    let owner_role = user.site_roles.iter().any(|role| role == coder_domain::rbac::SiteRole::Owner.as_str());
    if !own && owner_role && !caller.is_owner() {
        return Err(Error::forbidden());
    }
    if user.login_type != users::LoginType::Password {
        return Err(Error::bad_request("Users without password login type cannot change their password."));
    }
    check_password(&request.password)?;
    let failed = |e| Error::internal("Internal error.", e);
    if own {
        if !app
            .passwords
            .verify(request.old_password.clone(), user.password_hash.clone())
            .await
            .map_err(failed)?
        {
            return Err(Error::bad_request("Old password is incorrect.")
                .field("old_password", "Old password is incorrect."));
        }
        if request.old_password == request.password {
            return Err(Error::bad_request("New password cannot match old password."));
        }
    }
    let hash = app.passwords.hash(request.password).await.map_err(failed)?;
    let now = app.now();
    transaction!(app.store, coder_store::Error, |tx| {
        users::update_password(tx, user.id, &hash, now).await?;
        sessions::delete_others(tx, user.id, &caller.key.id).await?;
        Event::new(Verb::Write, Kind::User, user.id.0, user.username.as_str())
            .secret("hashed_password")
            .status(http::StatusCode::NO_CONTENT)
            .by(tx, &caller, now)
            .await?;
        write_down(&app.store, tx, Hint::Tokens(user.id), now).await
    })?;
    revoke::token(&app, user.id).await;
    Ok(NoContent)
}
