//! Changing a password.

use axum::extract::State;
use coder_api::users::UpdatePasswordRequest;
use coder_domain::rbac::Action;
use coder_store::{sessions, tokens, transaction, users};

use super::create::check_password;
use super::{find, takeover};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::provisioning::credentials::revoke;

/// `PUT /users/{user}/password`: one's own with the old one; other people's with the right to update accounts and to
/// assign their roles. Every session and token of the account ends, except the one presented, and with them the daemons
/// that joined with them and the tokens that they created, so that the old password is of no use any more.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdatePasswordRequest>,
) -> Result<NoContent> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::visible(&mut tx, &caller, &name).await?;
    let own = user.id == caller.user.id;
    caller.require(if own { Action::UpdatePersonal } else { Action::Update }, find::object(&user))?;
    takeover::require(&mut tx, &caller, &user).await?;
    drop(tx);
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
    let signed_out = transaction!(app.store, Error, |tx| {
        // The account may have got more roles while the password was hashed.
        let user = users::get(tx, user.id).await?;
        takeover::require(tx, &caller, &user).await?;
        users::update_password(tx, user.id, &hash, now).await?;
        let signed_out = tokens::list_affected_users(tx, user.id, None).await?;
        sessions::delete_others(tx, user.id, &caller.key.id).await?;
        Event::new(Verb::Write, Kind::User, user.id.0, user.username.as_str())
            .secret("hashed_password")
            .status(http::StatusCode::NO_CONTENT)
            .by(tx, &caller, now)
            .await?;
        revoke::write_down_tokens(&app, tx, &signed_out, now).await?;
        Ok(signed_out)
    })?;
    revoke::tokens(&app, &signed_out).await;
    Ok(NoContent)
}
