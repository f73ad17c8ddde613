//! Removing a key; whoever uses it is signed out at once.

use axum::extract::State;
use coder_domain::rbac::Action;
use coder_store::tokens;

use super::object;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, NoContent, Result};
use crate::routes::users;

/// `DELETE /users/{user}/keys/{id}`
pub async fn delete(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [user, id] = names.take()?;
    let mut tx = app.store.begin().await?;
    let user = users::find::visible(&mut tx, &caller, &user).await?;
    caller.require_visible(Action::Delete, object(user.id))?;
    let key = tokens::find(&mut tx, &id).await?.filter(|key| key.user_id == user.id);
    let key = key.ok_or_else(Error::not_found)?;
    tokens::delete(&mut tx, &id).await?;
    let event = Event::new(Verb::Delete, Kind::ApiKey, user.id.0, key.token_name).note("key_id", id);
    event.by(&mut tx, &caller, app.now()).await?;
    tx.commit().await?;
    Ok(NoContent)
}
