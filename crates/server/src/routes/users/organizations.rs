//! The organizations a user belongs to.

use axum::extract::State;
use coder_api::organizations::Organization;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::organizations;

use super::find;
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::routes::organizations::{named, view};

/// `GET /users/{user}/organizations`
pub async fn list(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Vec<Organization>>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::visible(&mut tx, &caller, &name).await?;
    let found = organizations::list_of_user(&mut tx, user.id).await?;
    let visible = |row: &&organizations::Organization| {
        caller.may(Action::Read, Object::in_organization(Resource::Organization, row.id).with_id(row.id.0))
    };
    Ok(Json(found.iter().filter(visible).map(view).collect()))
}

/// `GET /users/{user}/organizations/{name}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Organization>> {
    let [user, name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::visible(&mut tx, &caller, &user).await?;
    let organization = named(&app, &mut tx, &caller, &name).await?;
    let member = organizations::find_member(&mut tx, organization.id, user.id).await?;
    member.ok_or_else(Error::not_found)?;
    Ok(Json(view(&organization)))
}
