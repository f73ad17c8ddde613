//! Site roles: who has which, which exist, and changing them.

use std::collections::BTreeMap;

use axum::extract::State;
use coder_api::users::{AssignableRole, UpdateRolesRequest, User, UserRoles};
use coder_domain::rbac::{Action, Resource, SiteRole};
use coder_store::{organizations, users};

use super::{find, view};
use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};

/// `GET /users/roles`
pub async fn assignable(caller: Caller) -> Json<Vec<AssignableRole>> {
    let role = |role: &SiteRole| AssignableRole {
        name: role.as_str().to_owned(),
        display_name: role.display_name().to_owned(),
        assignable: caller.is_owner(),
        built_in: true,
        ..AssignableRole::default()
    };
    Json(SiteRole::ALL.iter().map(role).collect())
}

/// `GET /users/{user}/roles`
pub async fn show(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<UserRoles>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::visible(&mut tx, &caller, &name).await?;
    let memberships = organizations::list_memberships(&mut tx, &[user.id]).await?;
    let organization_roles: BTreeMap<_, _> =
        memberships.into_iter().map(|member| (member.organization_id, member.roles)).collect();
    Ok(Json(UserRoles { roles: user.site_roles, organization_roles }))
}

/// `PUT /users/{user}/roles`: the complete new set. Only an owner grants or takes a site role.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateRolesRequest>,
) -> Result<Json<User>> {
    let [name] = names.take()?;
    let mut tx = app.store.begin().await?;
    let mut user = find::visible(&mut tx, &caller, &name).await?;
    if user.id == caller.user.id {
        return Err(Error::bad_request("You cannot change your own roles."));
    }
    caller.require_site(Action::Update, Resource::User)?;
    let mut roles: Vec<_> = request.roles.into_iter().filter(|role| role != "member").collect();
    roles.sort();
    roles.dedup();
    if let Some(unknown) = roles.iter().find(|role| role.parse::<SiteRole>().is_err()) {
        return Err(Error::bad_request("One or more roles are invalid.")
            .field("roles", format!("unknown role {unknown:?}")));
    }
    let mut before = user.site_roles.clone();
    before.sort();
    if before != roles && !caller.is_owner() {
        return Err(Error::forbidden());
    }
    user.site_roles = roles;
    user.updated_at = app.now();
    users::update_roles(&mut tx, user.id, &user.site_roles, user.updated_at).await?;
    let memberships = organizations::list_of_user(&mut tx, user.id).await?;
    tx.commit().await?;
    Ok(Json(view::user(&user, memberships.into_iter().map(|found| found.id).collect())))
}
