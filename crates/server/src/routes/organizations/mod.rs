//! Organizations: reading and listing them here; creating, changing and removing them, and their members, below.

pub mod create;
pub mod delete;
pub mod members;
pub mod roles;
pub mod update;

use axum::extract::State;
use coder_api::organizations::Organization;
use coder_api::paths::DEFAULT_ORGANIZATION;
use coder_domain::ids::OrganizationId;
use coder_domain::names;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::{Tx, organizations as store};

use crate::context::App;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::lookup;

/// The API type of an organization.
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

/// The RBAC object of an organization.
pub const fn object(organization: &store::Organization) -> Object {
    Object::in_organization(Resource::Organization, organization.id).with_id(organization.id.0)
}

/// The id of the organization a path names, if the caller may see it. The caller's own organizations were read at
/// authentication.
pub async fn id_of(app: &App, tx: &mut Tx, caller: &Caller, name: &str) -> Result<OrganizationId> {
    let id = match name.parse::<OrganizationId>() {
        Ok(id) if !id.is_nil() => Some(id),
        Ok(_) => Some(app.default_organization),
        Err(_) => name.eq_ignore_ascii_case(DEFAULT_ORGANIZATION).then_some(app.default_organization),
    };
    if let Some(id) = id
        && caller.subject.organizations.contains_key(&id)
        && caller.may(Action::Read, Object::in_organization(Resource::Organization, id).with_id(id.0))
    {
        return Ok(id);
    }
    Ok(named(app, tx, caller, name).await?.id)
}

/// Finds the organization a path names, if the caller may see it.
pub async fn named(app: &App, tx: &mut Tx, caller: &Caller, name: &str) -> Result<store::Organization> {
    let found = lookup::organization(app, tx, name).await?;
    caller.require_visible(Action::Read, object(&found))?;
    Ok(found)
}

/// `GET /organizations`
pub async fn list(State(app): State<App>, caller: Caller) -> Result<Json<Vec<Organization>>> {
    let all = store::list(&mut app.store.reader().await?).await?;
    let visible = |row: &&store::Organization| caller.may(Action::Read, object(row));
    Ok(Json(all.iter().filter(visible).map(view).collect()))
}

/// `GET /organizations/{organization}`
pub async fn get(State(app): State<App>, caller: Caller, names: Names) -> Result<Json<Organization>> {
    let [name] = names.take()?;
    Ok(Json(view(&named(&app, &mut app.store.reader().await?, &caller, &name).await?)))
}

/// Checks names and texts of an organization (http-api 1.10).
fn check(row: &store::Organization) -> Result<()> {
    names::organization(&row.name).map_err(|error| Error::invalid("name", format!("The name {error}.")))?;
    names::display_name(&row.display_name)
        .map_err(|error| Error::invalid("display_name", format!("The display name {error}.")))?;
    for (field, text, limit) in
        [("description", &row.description, DESCRIPTION_CHARACTERS), ("icon", &row.icon, ICON_CHARACTERS)]
    {
        if text.chars().count() > limit || text.contains('\0') {
            return Err(Error::invalid(field, format!("At most {limit} characters, without NUL.")));
        }
    }
    Ok(())
}

/// Longest description; the official server sets no limit.
const DESCRIPTION_CHARACTERS: usize = 1024;
/// Longest icon.
const ICON_CHARACTERS: usize = 256;

/// 409 for a name that another organization has.
fn taken(error: coder_store::Error) -> Error {
    if error.is_conflict_on("organizations", "name_lower") {
        return Error::name_taken("Organization already exists with that name.");
    }
    error.into()
}
