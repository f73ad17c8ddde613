//! Listing API tokens.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::tokens::ApiKeyWithOwner;
use coder_domain::rbac::Action;
use coder_store::{tokens, users as accounts};

use super::{object, view};
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Json, Result};
use crate::routes::users;

/// `GET /users/{user}/keys/tokens`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<Vec<ApiKeyWithOwner>>> {
    let [name] = names.take()?;
    let all = query.flag("include_all")?;
    let mut tx = app.store.reader().await?;
    let user = users::find::visible(&mut tx, &caller, &name).await?;
    caller.require_visible(Action::Read, object(user.id))?;
    let mut rows = tokens::list_tokens(&mut tx, (!all).then_some(user.id)).await?;
    rows.retain(|key| caller.may(Action::Read, object(key.user_id)));
    let owners: Vec<_> = rows.iter().map(|key| key.user_id).collect();
    let owners = accounts::find_many(&mut tx, &owners).await?;
    let names: HashMap<_, _> = owners.into_iter().map(|owner| (owner.id, owner.username)).collect();
    let with_owner = |key: tokens::ApiKey| {
        let username = names.get(&key.user_id).cloned().unwrap_or_default();
        ApiKeyWithOwner { key: view(key), username }
    };
    Ok(Json(rows.into_iter().map(with_owner).collect()))
}
