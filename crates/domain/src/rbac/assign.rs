//! Who may assign and remove which role (scheduling-and-auth 4.6). The roles `member` and `organization-member` are
//! implied and cannot be assigned.

use super::{Action, Object, OrgRole, Resource, SiteRole, Subject, decide};
use crate::ids::OrganizationId;

/// Whether the subject may assign or remove a site role. Owners may assign any.
#[must_use]
pub fn may_assign_site(subject: &Subject, _role: SiteRole) -> bool {
    decide(subject, Action::Create, Object::site(Resource::AssignRole))
}

/// Whether the subject may assign or remove a role in this organization. Owners and admins of the organization may
/// assign any. User admins of the site and of the organization may only add and remove members.
#[must_use]
pub fn may_assign_organization(subject: &Subject, organization: OrganizationId, _role: OrgRole) -> bool {
    let object = Object::in_organization(Resource::AssignOrgRole, organization);
    let is_admin = subject.site.contains(&SiteRole::Owner)
        || subject.organizations.get(&organization).is_some_and(|roles| roles.contains(&OrgRole::Admin));
    is_admin && decide(subject, Action::Create, object)
}

/// As [`may_assign_site`] for a stored name. A role of a newer release may be assigned by users who may assign any role.
#[must_use]
pub fn may_assign_site_name(subject: &Subject, name: &str) -> bool {
    may_assign_site(subject, name.parse().unwrap_or(SiteRole::Owner))
}

/// As [`may_assign_organization`] for a stored name, with the same rule for roles of a newer release.
#[must_use]
pub fn may_assign_organization_name(subject: &Subject, organization: OrganizationId, name: &str) -> bool {
    may_assign_organization(subject, organization, name.parse().unwrap_or(OrgRole::Admin))
}

/// Whether the subject may take over an account with these stored role names. A user who sets the password of an account
/// can sign in to it, so they must be allowed to assign each of its roles, in each organization. A token with limits is
/// not enough, because a sign-in has no limits.
#[must_use]
pub fn may_take_over<'a>(
    subject: &Subject,
    site: impl IntoIterator<Item = &'a str>,
    organizations: impl IntoIterator<Item = (OrganizationId, &'a str)>,
) -> bool {
    subject.scopes.is_all()
        && site.into_iter().all(|name| may_assign_site_name(subject, name))
        && organizations.into_iter().all(|(id, name)| may_assign_organization_name(subject, id, name))
}
