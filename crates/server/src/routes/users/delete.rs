//! Deleting accounts.

use axum::extract::State;
use coder_api::error::Message;
use coder_domain::rbac::{Action, Resource};
use coder_store::{tokens, transaction, users, workspaces};
use http::StatusCode;

use super::{find, takeover};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result, body};
use crate::provisioning::credentials::revoke;

/// `DELETE /users/{user}`
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Message>> {
    let [name] = names.take()?;
    let now = app.now();
    let (id, signed_out) = transaction!(app.store, Error, |tx| {
        let user = find::visible(tx, &caller, &name).await?;
        caller.require_site(Action::Delete, Resource::User)?;
        if user.id == caller.user.id {
            return Err(Error::new(StatusCode::FORBIDDEN, "You cannot delete yourself!"));
        }
        takeover::require_still(tx, &caller, user.id).await?;
        takeover::require(tx, &caller, &user).await?;
        if workspaces::count_of_owner(tx, user.id).await? > 0 {
            return Err(Error::new(
                StatusCode::EXPECTATION_FAILED,
                "You cannot delete a user that has workspaces. Delete their workspaces and try again!",
            ));
        }
        users::delete(tx, user.id, now).await?;
        let signed_out = tokens::list_affected_users(tx, user.id, None).await?;
        tokens::delete_of_user(tx, user.id).await?;
        Event::new(Verb::Delete, Kind::User, user.id.0, user.username).by(tx, &caller, now).await?;
        write_down(&app.store, tx, Hint::User(user.id), now).await?;
        revoke::write_down_tokens(&app, tx, &signed_out, now).await?;
        Ok((user.id, signed_out))
    })?;
    revoke::user(&app, id).await;
    revoke::tokens(&app, &signed_out).await;
    Ok(body::message("User has been deleted!"))
}
