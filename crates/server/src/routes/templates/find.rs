//! Loads templates, and checks access.

use coder_domain::ids::{OrganizationId, TemplateId};
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::Tx;
use coder_store::templates::{self, Template};

use crate::http::{Caller, Error, Result};

/// The RBAC object of the templates and versions of an organization.
pub const fn object(organization: OrganizationId) -> Object {
    Object::in_organization(Resource::Template, organization)
}

/// The RBAC object of one template and its versions. A token may be limited to it.
pub const fn of(template: &Template) -> Object {
    object(template.organization_id).with_id(template.id.0)
}

/// Whether a role of the caller allows reading templates, beyond the group "Everyone".
fn sees_by_role(caller: &Caller, object: Object) -> bool {
    let anywhere = Object { organization: None, ..object };
    caller.may(Action::Update, object) || caller.may(Action::Read, anywhere)
}

/// 404 unless a role of the caller allows reading templates of the organization, then 403 unless the action is allowed. For
/// versions without a template.
pub fn require_by_role(caller: &Caller, action: Action, organization: OrganizationId) -> Result<()> {
    let object = object(organization);
    if !sees_by_role(caller, object) {
        return Err(Error::not_found());
    }
    caller.require_visible(action, object)
}

/// Whether the caller may do this to the template. Members may use it through the group "Everyone", unless that was removed.
pub fn may(caller: &Caller, action: Action, template: &Template) -> bool {
    let object = of(template);
    caller.may(action, object) && (template.settings.everyone_may_use || sees_by_role(caller, object))
}

/// 404 unless the caller may read the template, then 403 unless the action is allowed.
pub fn require(caller: &Caller, action: Action, template: &Template) -> Result<()> {
    if template.deleted || !may(caller, Action::Read, template) {
        return Err(Error::not_found());
    }
    if may(caller, action, template) { Ok(()) } else { Err(Error::forbidden()) }
}

/// A template by id for this action.
pub async fn by_id(tx: &mut Tx, caller: &Caller, id: TemplateId, action: Action) -> Result<Template> {
    let template = templates::find(tx, id).await?.ok_or_else(Error::not_found)?;
    require(caller, action, &template)?;
    Ok(template)
}
