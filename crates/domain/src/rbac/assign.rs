//! Who may give and take which role (scheduling-and-auth 4.6). The implied roles, `member` and `organization-member`, come
//! with the account and the membership and are not given here.

use super::{Action, Object, OrgRole, Resource, SiteRole, Subject, decide};
use crate::ids::OrganizationId;

/// Whether the subject may give or take a site role: owners, any.
#[must_use]
pub fn may_assign_site(subject: &Subject, _role: SiteRole) -> bool {
    decide(subject, Action::Create, Object::site(Resource::AssignRole))
}

/// Whether the subject may give or take a role in this organization: owners and the organization's admins, any. User
/// admins, of the site and of the organization, may only make and remove members.
#[must_use]
pub fn may_assign_organization(subject: &Subject, organization: OrganizationId, _role: OrgRole) -> bool {
    let object = Object::in_organization(Resource::AssignOrgRole, organization);
    let is_admin = subject.site.contains(&SiteRole::Owner)
        || subject.organizations.get(&organization).is_some_and(|roles| roles.contains(&OrgRole::Admin));
    is_admin && decide(subject, Action::Create, object)
}
