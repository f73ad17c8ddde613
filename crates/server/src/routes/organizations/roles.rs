//! Roles of an organization: listing and assigning them.

use axum::extract::State;
use coder_api::organizations::OrganizationMember;
use coder_api::users::{AssignableRole, UpdateRolesRequest};
use coder_domain::ids::OrganizationId;
use coder_domain::rbac::{
    Action, Object, OrgRole, Resource, may_assign_organization, may_assign_organization_name,
};
use coder_store::{organizations as store, transaction};
use http::StatusCode;

use super::{members, named};
use crate::audit::{Event, Kind, Verb};
use crate::context::App;
use crate::events::hint::Hint;
use crate::events::written::write_down;
use crate::http::params::Names;
use crate::http::{Caller, Error, Json, Result};
use crate::provisioning::credentials::revoke;
use crate::routes::users::{permissions, roles::changed, takeover};

/// The role that every member has. Requests may name it.
const MEMBER_ROLE: &str = "organization-member";

/// 403 unless the caller may assign all of these.
pub fn require_assignable(
    caller: &Caller,
    organization: OrganizationId,
    roles: impl IntoIterator<Item = impl AsRef<str>>,
) -> Result<()> {
    for word in roles {
        if !may_assign_organization_name(&caller.subject, organization, word.as_ref()) {
            let detail = format!("You may neither give nor take the role {:?}.", word.as_ref());
            return Err(Error::forbidden().detail(detail));
        }
    }
    Ok(())
}

/// `GET /organizations/{organization}/members/roles`
pub async fn assignable(
    State(app): State<App>,
    caller: Caller,
    names: Names,
) -> Result<Json<Vec<AssignableRole>>> {
    let [name] = names.take()?;
    let organization = named(&app, &mut app.store.reader().await?, &caller, &name).await?.id;
    caller.require_visible(Action::Read, Object::in_organization(Resource::AssignOrgRole, organization))?;
    let role = |role: &OrgRole| AssignableRole {
        name: role.as_str().to_owned(),
        organization_id: Some(organization),
        display_name: role.display_name().to_owned(),
        organization_permissions: permissions::of_organization(*role),
        assignable: may_assign_organization(&caller.subject, organization, *role),
        built_in: true,
        ..AssignableRole::default()
    };
    Ok(Json(OrgRole::ALL.iter().map(role).collect()))
}

/// `POST` and `PUT /organizations/{organization}/members/roles`: there are no custom roles, as the entitlements say.
pub async fn custom(State(app): State<App>, caller: Caller, names: Names) -> Result<()> {
    let [name] = names.take()?;
    let organization = named(&app, &mut app.store.reader().await?, &caller, &name).await?.id;
    caller.require_visible(Action::Read, Object::in_organization(Resource::AssignOrgRole, organization))?;
    Err(Error::new(StatusCode::FORBIDDEN, "Custom roles are not available on this server.")
        .detail("Give members the built-in roles that GET of the same path lists."))
}

/// `PUT /organizations/{organization}/members/{user}/roles`: the complete new set.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    names: Names,
    Json(request): Json<UpdateRolesRequest>,
) -> Result<Json<OrganizationMember>> {
    let [name, user] = names.take()?;
    let mut roles: Vec<_> = request.roles.into_iter().filter(|role| role != MEMBER_ROLE).collect();
    roles.sort();
    roles.dedup();
    let now = app.now();
    let member = transaction!(app.store, Error, |tx| {
        let organization = named(&app, tx, &caller, &name).await?;
        caller.require(Action::Update, members::object(organization.id))?;
        takeover::require_unlimited(&caller)?;
        let (found, _) = members::find(tx, &caller, organization.id, &user).await?;
        if found.id == caller.user.id {
            return Err(Error::bad_request("You cannot change your own organization roles."));
        }
        takeover::require_still(tx, &caller, found.id).await?;
        let (user, member) = members::find(tx, &caller, organization.id, &user).await?;
        if let Some(unknown) = roles.iter().find(|role| role.parse::<OrgRole>().is_err()) {
            return Err(Error::bad_request("One or more organization roles are invalid.")
                .field("roles", format!("unknown organization role {unknown:?}")));
        }
        require_assignable(&caller, organization.id, changed(&member.roles, &roles))?;
        store::update_member_roles(tx, organization.id, user.id, &roles, now).await?;
        Event::new(Verb::Write, Kind::Member, user.id.0, user.username)
            .in_organization(organization.id)
            .change("roles", &member.roles, &roles)
            .by(tx, &caller, now)
            .await?;
        write_down(&app.store, tx, Hint::User(member.user_id), now).await?;
        Ok(member)
    })?;
    revoke::user(&app, member.user_id).await;
    Ok(Json(members::view(store::Member { roles, updated_at: now, ..member })))
}
