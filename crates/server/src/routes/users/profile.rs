//! Changes the names of an account.

use axum::extract::State;
use coder_api::users::{UpdateProfileRequest, User};
use coder_domain::names;
use coder_domain::rbac::Action;
use coder_store::{organizations, transaction, users};

use super::{create, find, takeover, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};

/// `PUT /users/{user}/profile`. Other people are addressed by their names, when roles are given for example, so a name is
/// changed only by who may change the account.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateProfileRequest>,
) -> Result<Json<User>> {
    let [name] = names.take()?;
    let now = app.now();
    let (user, memberships) = transaction!(app.store, Error, |tx| {
        let mut user = find::visible(tx, &caller, &name).await?;
        let own = user.id == caller.user.id;
        caller.require(if own { Action::UpdatePersonal } else { Action::Update }, find::object(&user))?;
        takeover::require(tx, &caller, &user).await?;
        names::user(&request.username)
            .map_err(|e| Error::invalid("username", format!("The user name {e}.")))?;
        names::real_name(request.name.trim())
            .map_err(|e| Error::invalid("name", format!("The name {e}.")))?;
        let shown = request.name.trim().to_owned();
        let event = Event::new(Verb::Write, Kind::User, user.id.0, request.username.as_str())
            .change("username", &user.username, &request.username)
            .change("name", &user.name, &shown);
        user.username.clone_from(&request.username);
        user.name = shown;
        user.updated_at = now;
        users::update_profile(tx, user.id, &user.username, &user.name, now).await.map_err(create::taken)?;
        let memberships = organizations::list_of_user(tx, user.id).await?;
        event.by(tx, &caller, now).await?;
        Ok((user, memberships))
    })?;
    Ok(Json(view::user(&user, memberships.into_iter().map(|found| found.id).collect())))
}
