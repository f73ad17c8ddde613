//! Members of an organization.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::organizations::{MemberWithUserData, OrganizationMember, PaginatedMembers};
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, UNLIMITED, organizations as store, transaction, users};
use http::StatusCode;

use super::named;
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Error, Json, NoContent, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::users::{self as accounts, takeover};

/// The RBAC object of the memberships of an organization.
pub const fn object(organization: OrganizationId) -> Object {
    Object::in_organization(Resource::OrganizationMember, organization)
}

/// The API type of a membership.
pub fn view(row: store::Member) -> OrganizationMember {
    OrganizationMember {
        user_id: row.user_id,
        organization_id: row.organization_id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        roles: accounts::view::organization_roles(&row.roles, row.organization_id),
    }
}

/// The member a path names, for callers who may manage members; 404 otherwise.
pub async fn find(
    tx: &mut Tx,
    caller: &Caller,
    organization: OrganizationId,
    name: &str,
) -> Result<(users::User, store::Member)> {
    let user = if name == coder_api::paths::ME {
        Some((*caller.user).clone())
    } else {
        accounts::find::by_name(tx, name).await?
    };
    let user = user.ok_or_else(Error::not_found)?;
    let member = store::find_member(tx, organization, user.id).await?.ok_or_else(Error::not_found)?;
    Ok((user, member))
}

/// `GET /organizations/{organization}/members`
pub async fn list(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<Vec<MemberWithUserData>>> {
    Ok(Json(load(&app, &caller, names).await?))
}

/// `GET /organizations/{organization}/paginated-members`
pub async fn paginated(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<PaginatedMembers>> {
    let page = query.page()?;
    let members = load(&app, &caller, names).await?;
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    Ok(Json(PaginatedMembers { members: page.cut(members, |row| row.member.user_id.0), count }))
}

async fn load(app: &App, caller: &Caller, names: Names) -> Result<Vec<MemberWithUserData>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = named(app, &mut tx, caller, &name).await?;
    caller.require_visible(Action::Read, object(organization.id))?;
    let members = store::list_members(&mut tx, organization.id, UNLIMITED, 0).await?;
    let ids: Vec<_> = members.iter().map(|member| member.user_id).collect();
    let people: HashMap<_, _> =
        users::find_many(&mut tx, &ids).await?.into_iter().map(|row| (row.id, row)).collect();
    let with_data = |member: store::Member| {
        let person = people.get(&member.user_id)?;
        Some(MemberWithUserData {
            username: person.username.clone(),
            name: person.name.clone(),
            avatar_url: person.avatar_url.clone(),
            email: person.email.clone(),
            global_roles: accounts::view::site_roles(&person.site_roles),
            member: view(member),
        })
    };
    Ok(members.into_iter().filter_map(with_data).collect())
}

/// `POST /organizations/{organization}/members/{user}`
pub async fn add(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<OrganizationMember>> {
    let [name, user] = names.take()?;
    let taken = || {
        Error::bad_request("User is already an organization member")
            .field("user", "The user belongs to this organization already.")
    };
    let now = app.now();
    let member = transaction!(app.store, Error, |tx| {
        let organization = named(&app, tx, &caller, &name).await?;
        caller.require(Action::Create, object(organization.id))?;
        if !store::keep(tx, organization.id).await? {
            return Err(Error::not_found());
        }
        let user = match accounts::find::by_name(tx, &user).await? {
            Some(user) if !user.is_system => user,
            _ => return Err(accounts::find::unknown()),
        };
        if store::find_member(tx, organization.id, user.id).await?.is_some() {
            return Err(taken());
        }
        let member = accounts::create::membership(organization.id, user.id, now);
        store::insert_member(tx, &member).await.map_err(|error| match error {
            coder_store::Error::Conflict { .. } => taken(),
            other => other.into(),
        })?;
        let event = Event::new(Verb::Create, Kind::Member, user.id.0, user.username).status(StatusCode::OK);
        event.in_organization(organization.id).by(tx, &caller, now).await?;
        Ok(member)
    })?;
    Ok(Json(view(member)))
}

/// `DELETE /organizations/{organization}/members/{user}`
pub async fn remove(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [name, user] = names.take()?;
    let now = app.now();
    let user = transaction!(app.store, Error, |tx| {
        let organization = named(&app, tx, &caller, &name).await?;
        caller.require(Action::Delete, object(organization.id))?;
        let (found, _) = find(tx, &caller, organization.id, &user).await?;
        if found.id == caller.user.id {
            return Err(Error::bad_request("You cannot remove yourself from an organization."));
        }
        takeover::require_still(tx, &caller, found.id).await?;
        let (user, member) = find(tx, &caller, organization.id, &user).await?;
        // Removing a membership removes its roles, too.
        super::roles::require_assignable(&caller, organization.id, &member.roles)?;
        store::delete_member(tx, organization.id, user.id).await?;
        Event::new(Verb::Delete, Kind::Member, user.id.0, user.username)
            .in_organization(organization.id)
            .change("roles", &member.roles, [""; 0])
            .status(StatusCode::NO_CONTENT)
            .by(tx, &caller, now)
            .await?;
        write_down(&app.store, tx, Hint::User(user.id), now).await?;
        Ok(user.id)
    })?;
    revoke::user(&app, user).await;
    Ok(NoContent)
}
