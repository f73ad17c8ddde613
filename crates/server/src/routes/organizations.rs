//! Organizations and their members.

use std::collections::HashMap;

use axum::extract::State;
use coder_api::organizations::{MemberWithUserData, Organization, OrganizationMember, PaginatedMembers};
use coder_api::paths::DEFAULT_ORGANIZATION;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, UNLIMITED, organizations as store, users};

use super::users as accounts;
use crate::context::App;
use crate::http::params::{Names, Query};
use crate::http::{Caller, Error, Json, NoContent, Result};

/// How an organization looks on the wire.
pub fn view(row: &store::Organization) -> Organization {
    Organization {
        id: row.id,
        name: row.name.clone(),
        display_name: row.display_name.clone(),
        icon: row.icon.clone(),
        description: row.description.clone(),
        created_at: row.created_at,
        updated_at: row.updated_at,
        is_default: row.is_default,
    }
}

/// Finds the organization a path names: an id, a name, `default` or the zero id (http-api 1.2). No rights are checked;
/// the daemon endpoint needs that.
pub async fn find(app: &App, tx: &mut Tx, name: &str) -> Result<store::Organization> {
    let found = match name.parse::<coder_domain::ids::OrganizationId>() {
        Ok(id) if !id.is_nil() => store::find(tx, id).await?,
        Ok(_) => store::find(tx, app.default_organization).await?,
        Err(_) if name.eq_ignore_ascii_case(DEFAULT_ORGANIZATION) => {
            store::find(tx, app.default_organization).await?
        }
        Err(_) => store::find_by_name(tx, name).await?,
    };
    found.ok_or_else(Error::not_found)
}

/// Finds the organization a path names, if the caller may see it.
pub async fn named(app: &App, tx: &mut Tx, caller: &Caller, name: &str) -> Result<store::Organization> {
    let found = find(app, tx, name).await?;
    caller.require_visible(Action::Read, Object::in_organization(Resource::Organization, found.id))?;
    Ok(found)
}

/// `GET /organizations`
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<Organization>>> {
    let all = store::list(&mut app.store.reader().await?).await?;
    let visible = |row: &&store::Organization| {
        caller.may(Action::Read, Object::in_organization(Resource::Organization, row.id))
    };
    Ok(Json(all.iter().filter(visible).map(view).collect()))
}

/// `GET /organizations/{organization}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Organization>> {
    let [name] = names.take()?;
    Ok(Json(view(&named(&app, &mut app.store.reader().await?, &caller, &name).await?)))
}

/// `GET /organizations/{organization}/members`
pub async fn members(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<Vec<MemberWithUserData>>> {
    Ok(Json(load_members(&app, &caller, names).await?))
}

/// `GET /organizations/{organization}/paginated-members`
pub async fn paginated_members(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    query: Query,
) -> Result<Json<PaginatedMembers>> {
    let page = query.page()?;
    let members = load_members(&app, &caller, names).await?;
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    Ok(Json(PaginatedMembers { members: page.cut(members, |row| row.member.user_id.0), count }))
}

async fn load_members(app: &App, caller: &Caller, names: Names) -> Result<Vec<MemberWithUserData>> {
    let [name] = names.take()?;
    let mut tx = app.store.reader().await?;
    let organization = named(app, &mut tx, caller, &name).await?;
    caller.require_visible(
        Action::Read,
        Object::in_organization(Resource::OrganizationMember, organization.id),
    )?;
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
            member: view_member(member),
        })
    };
    Ok(members.into_iter().filter_map(with_data).collect())
}

fn view_member(row: store::Member) -> OrganizationMember {
    OrganizationMember {
        user_id: row.user_id,
        organization_id: row.organization_id,
        created_at: row.created_at,
        updated_at: row.updated_at,
        roles: accounts::view::organization_roles(&row.roles, row.organization_id),
    }
}

/// `POST /organizations/{organization}/members/{user}`
pub async fn add_member(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<OrganizationMember>> {
    let [name, user] = names.take()?;
    let mut tx = app.store.begin().await?;
    let organization = named(&app, &mut tx, &caller, &name).await?;
    caller.require(Action::Create, Object::in_organization(Resource::OrganizationMember, organization.id))?;
    let user = accounts::find::visible(&mut tx, &caller, &user).await?;
    if store::find_member(&mut tx, organization.id, user.id).await?.is_some() {
        return Err(Error::bad_request("User is already an organization member")
            .field("user", "The user belongs to this organization already."));
    }
    let member = accounts::create::membership(organization.id, user.id, app.now());
    store::insert_member(&mut tx, &member).await?;
    tx.commit().await?;
    Ok(Json(view_member(member)))
}

/// `DELETE /organizations/{organization}/members/{user}`
pub async fn remove_member(State(app): State<App>, caller: Caller, names: Names) -> Result<NoContent> {
    let [name, user] = names.take()?;
    let mut tx = app.store.begin().await?;
    let organization = named(&app, &mut tx, &caller, &name).await?;
    caller.require(Action::Delete, Object::in_organization(Resource::OrganizationMember, organization.id))?;
    let user = accounts::find::visible(&mut tx, &caller, &user).await?;
    if user.id == caller.user.id {
        return Err(Error::bad_request("You cannot remove yourself from an organization."));
    }
    if store::find_member(&mut tx, organization.id, user.id).await?.is_none() {
        return Err(Error::not_found());
    }
    store::delete_member(&mut tx, organization.id, user.id).await?;
    tx.commit().await?;
    Ok(NoContent)
}
