//! One account.

use axum::extract::State;
use coder_api::users::{User, UserLoginType};
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::organizations;

use super::{find, view};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Json, Result};

/// `GET /users/{user}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<User>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::readable(&mut tx, &caller, &name).await?;
    let memberships = if user.id == caller.user.id {
        caller.subject.organizations.keys().copied().collect()
    } else {
        organizations::list_of_user(&mut tx, user.id).await?.into_iter().map(|found| found.id).collect()
    };
    Ok(Json(view::user(&user, memberships)))
}

/// `GET /users/{user}/login-type`
pub async fn login_type(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<UserLoginType>> {
    let [name] = names.take()?;
    let user = find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    caller.require(Action::UpdatePersonal, Object::site(Resource::User).owned_by(user.id))?;
    Ok(Json(UserLoginType { login_type: user.login_type.as_str().into() }))
}
