//! Deletes a key and all keys that it created. Their users are signed out at once, and their daemons disconnected.

use axum::extract::State;
use coder_domain::rbac::Action;
use coder_store::{tokens, transaction};

use super::object;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, NoContent, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::users;

/// `DELETE /users/{user}/keys/{id}`
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [user, id] = names.take()?;
    let now = app.now();
    let signed_out = transaction!(app.store, Error, |tx| {
        let user = users::find::visible(tx, &caller, &user).await?;
        caller.require_visible(Action::Delete, object(user.id))?;
        let key = tokens::find(tx, &id).await?.filter(|key| key.user_id == user.id);
        let key = key.ok_or_else(Error::not_found)?;
        let signed_out = tokens::list_affected_users(tx, user.id, Some(&id)).await?;
        tokens::delete(tx, &id).await?;
        let event = Event::new(Verb::Delete, Kind::ApiKey, user.id.0, key.token_name);
        event.note("key_id", id.as_str()).by(tx, &caller, now).await?;
        revoke::write_down_tokens(&app, tx, &signed_out, now).await?;
        Ok(signed_out)
    })?;
    revoke::tokens(&app, &signed_out).await;
    Ok(NoContent)
}
