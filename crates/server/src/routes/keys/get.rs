//! One key, and the limits of new tokens.

use axum::extract::State;
use coder_api::tokens::{ApiKey, ScopeCatalog, TokenConfig};
use coder_domain::rbac::{Action, scope};
use coder_store::tokens;

use super::{create, object, view};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::users;

/// `GET /users/{user}/keys/{id}`
pub async fn by_id(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<ApiKey>> {
    let [user, id] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = users::find::visible(&mut tx, &caller, &user).await?;
    caller.require_visible(Action::Read, object(user.id))?;
    let key = tokens::find(&mut tx, &id).await?.filter(|key| key.user_id == user.id);
    key.map(|key| Json(view(key))).ok_or_else(Error::not_found)
}

/// `GET /users/{user}/keys/tokens/{name}`
pub async fn by_name(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<ApiKey>> {
    let [user, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = users::find::visible(&mut tx, &caller, &user).await?;
    caller.require_visible(Action::Read, object(user.id))?;
    let key = tokens::find_by_name(&mut tx, user.id, &name).await?;
    key.map(|key| Json(view(key))).ok_or_else(Error::not_found)
}

/// `GET /users/{user}/keys/tokens/tokenconfig`
pub async fn config(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<TokenConfig>> {
    let [user] = names.take()?;
    let user = users::find::visible(&mut app.store.reader().await?, &caller, &user).await?;
    caller.require_visible(Action::Read, object(user.id))?;
    let longest = create::max_lifetime(&app, &user).as_nanos();
    Ok(Json(TokenConfig { max_token_lifetime: i64::try_from(longest).unwrap_or(i64::MAX) }))
}

/// `GET /auth/scopes`: what tokens may be limited to.
pub async fn scopes() -> Json<ScopeCatalog> {
    Json(ScopeCatalog { external: scope::public() })
}
