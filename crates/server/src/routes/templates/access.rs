//! Who may use a template: all members of its organization, or only those with a role for it. There are no other groups.

use axum::extract::State;
use coder_api::error::Message;
use coder_api::templates::{TemplateAcl, TemplateGroup, TemplateRole, UpdateTemplateAclRequest};
use coder_domain::ids::{OrganizationId, TemplateId};
use coder_domain::rbac::Action;
use coder_store::{UNLIMITED, organizations, templates, transaction};

use super::find;
use super::update::changed;
use crate::context::App;
use crate::http::params::Id;
use crate::http::{Caller, Error, Json, Result, body};

/// The group of all members of an organization. It has the organization's id.
const EVERYONE: &str = "Everyone";

/// `GET /templates/{template}/acl`: for those who may change the template.
pub async fn get(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
) -> Result<Json<TemplateAcl>> {
    let mut tx = app.store.reader().await?;
    let template = find::by_id(&mut tx, &caller, id, Action::Update).await?;
    if !template.settings.everyone_may_use {
        return Ok(Json(TemplateAcl::default()));
    }
    let organization = organizations::find(&mut tx, template.organization_id).await?;
    let organization = organization.ok_or_else(Error::not_found)?;
    let members = organizations::list_members(&mut tx, organization.id, UNLIMITED, 0).await?.len();
    let everyone = TemplateGroup {
        id: organization.id,
        name: EVERYONE.to_owned(),
        organization_id: organization.id,
        total_member_count: i64::try_from(members).unwrap_or(i64::MAX),
        source: "user".to_owned(),
        organization_name: organization.name,
        organization_display_name: organization.display_name,
        role: TemplateRole::Use,
        ..TemplateGroup::default()
    };
    Ok(Json(TemplateAcl { users: Vec::new(), groups: vec![everyone] }))
}

/// `PATCH /templates/{template}/acl`: gives or takes the access of the group "Everyone". Changing the template can only
/// take it.
pub async fn update(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<TemplateId>,
    Json(request): Json<UpdateTemplateAclRequest>,
) -> Result<Json<Message>> {
    let now = app.now();
    transaction!(app.store, Error, |tx| {
        let before = find::by_id(tx, &caller, id, Action::Update).await?;
        let mut row = before.clone();
        if let Some(may_use) = everyone(&request, before.organization_id)? {
            row.settings.everyone_may_use = may_use;
        }
        if row != before {
            row.updated_at = now;
            templates::update(tx, &row).await?;
            changed(&before, &row).by(tx, &caller, now).await?;
        }
        Ok(())
    })?;
    Ok(body::message("Successfully updated template ACL list."))
}

/// Whether the request gives or removes the access of all members.
fn everyone(request: &UpdateTemplateAclRequest, organization: OrganizationId) -> Result<Option<bool>> {
    if !request.user_perms.is_empty() {
        return Err(Error::invalid("user_perms", "Access of single users is not supported."));
    }
    let mut wanted = None;
    for (group, role) in &request.group_perms {
        if group.parse::<OrganizationId>().ok() != Some(organization) {
            let detail = format!("Only the group {EVERYONE:?} is supported; its id is {organization}.");
            return Err(Error::invalid("group_perms", detail));
        }
        wanted = Some(match role {
            TemplateRole::Use => true,
            TemplateRole::Removed => false,
            _ => {
                return Err(Error::invalid(
                    "group_perms",
                    "The role must be \"use\", or empty to remove it.",
                ));
            }
        });
    }
    Ok(wanted)
}
