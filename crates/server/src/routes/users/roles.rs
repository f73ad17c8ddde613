//! Site roles: the ones of a user, all that exist, and changing them.

use std::collections::BTreeMap;

use axum::extract::State;
use coder_api::users::{AssignableRole, UpdateRolesRequest, User, UserRoles};
use coder_domain::rbac::{Action, Object, Resource, SiteRole, may_assign_site, may_assign_site_name};
use coder_store::{organizations, tokens, transaction, users};

use super::{find, permissions, takeover, view};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::credentials::revoke;

/// The role that every user has. Requests may name it.
const MEMBER_ROLE: &str = "member";

/// `GET /users/roles`
pub async fn assignable(caller: Caller) -> Result<Json<Vec<AssignableRole>>> {
    caller.require(Action::Read, Object::site(Resource::AssignRole))?;
    let role = |role: &SiteRole| AssignableRole {
        name: role.as_str().to_owned(),
        display_name: role.display_name().to_owned(),
        site_permissions: permissions::of_site(*role),
        assignable: may_assign_site(&caller.subject, *role),
        built_in: true,
        ..AssignableRole::default()
    };
    Ok(Json(SiteRole::ALL.iter().map(role).collect()))
}

/// `GET /users/{user}/roles`
pub async fn show(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<UserRoles>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let user = find::readable(&mut tx, &caller, &name).await?;
    let memberships = organizations::list_memberships(&mut tx, &[user.id]).await?;
    let organization_roles: BTreeMap<_, _> =
        memberships.into_iter().map(|member| (member.organization_id, member.roles)).collect();
    Ok(Json(UserRoles { roles: user.site_roles, organization_roles }))
}

/// `PUT /users/{user}/roles`: the complete new set. User admins may call it. Adding or removing a role requires the
/// right to assign it.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateRolesRequest>,
) -> Result<Json<User>> {
    let [name] = names.take()?;
    let now = app.now();
    let user = find::visible(&mut app.store.reader().await?, &caller, &name).await?;
    if user.id == caller.user.id {
        return Err(Error::bad_request("You cannot change your own roles."));
    }
    caller.require_site(Action::Update, Resource::User)?;
    takeover::require_unlimited(&caller)?;
    let mut roles: Vec<_> = request.roles.into_iter().filter(|role| role != MEMBER_ROLE).collect();
    roles.sort();
    roles.dedup();
    if let Some(unknown) = roles.iter().find(|role| role.parse::<SiteRole>().is_err()) {
        return Err(Error::bad_request("One or more roles are invalid.")
            .field("roles", format!("unknown role {unknown:?}")));
    }
    let (user, memberships, signed_out) = transaction!(app.store, Error, |tx| {
        takeover::require_still(tx, &caller, user.id).await?;
        let mut user = find::visible(tx, &caller, &name).await?;
        for word in changed(&user.site_roles, &roles) {
            if !may_assign_site_name(&caller.subject, word) {
                return Err(
                    Error::forbidden().detail(format!("You may neither give nor take the role {word:?}."))
                );
            }
        }
        let event = Event::new(Verb::Write, Kind::User, user.id.0, user.username.as_str()).change(
            "rbac_roles",
            &user.site_roles,
            &roles,
        );
        // Tokens that the account created for others relied on its former roles.
        let mut signed_out = Vec::new();
        if user.site_roles.iter().any(|role| !roles.contains(role)) {
            signed_out = tokens::list_affected_users(tx, user.id, None).await?;
            tokens::delete_for_others(tx, user.id).await?;
        }
        user.site_roles.clone_from(&roles);
        user.updated_at = now;
        users::update_roles(tx, user.id, &roles, now).await?;
        if !has_owner(tx).await? {
            return Err(Error::conflict("The last owner cannot be taken away."));
        }
        event.by(tx, &caller, now).await?;
        let memberships = organizations::list_of_user(tx, user.id).await?;
        write_down(&app.store, tx, Hint::User(user.id), now).await?;
        revoke::write_down_tokens(&app, tx, &signed_out, now).await?;
        Ok((user, memberships, signed_out))
    })?;
    revoke::user(&app, user.id).await;
    revoke::tokens(&app, &signed_out).await;
    Ok(Json(view::user(&user, memberships.into_iter().map(|found| found.id).collect())))
}

/// Elements of exactly one of the two sets.
pub fn changed<'a>(before: &'a [String], after: &'a [String]) -> impl Iterator<Item = &'a String> {
    let taken = before.iter().filter(|role| !after.contains(role));
    taken.chain(after.iter().filter(|role| !before.contains(role)))
}

/// Whether an owner is left: two owners could remove each other's role at the same time.
async fn has_owner(tx: &mut coder_store::Tx) -> Result<bool> {
    let owners =
        users::UserFilter { role: Some(SiteRole::Owner.as_str().to_owned()), ..users::UserFilter::default() };
    Ok(users::count(tx, &owners).await? > 0)
}
