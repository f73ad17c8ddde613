//! The permissions of each built-in role, in the form of the official API. They are computed by asking `decide` about every
//! resource and action.

use std::collections::{BTreeMap, BTreeSet};

use coder_api::users::Permission;
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::rbac::{Action, Object, OrgRole, Resource, Scopes, SiteRole, Subject, decide};

/// The organization for which `decide` is asked.
const ASKED_ORGANIZATION: OrganizationId = OrganizationId::NIL;

fn subject(site: &[SiteRole], organization: Option<&[OrgRole]>) -> Subject {
    Subject {
        user: UserId::random(),
        site: site.iter().copied().collect(),
        organizations: organization
            .map(|roles| {
                BTreeMap::from([(ASKED_ORGANIZATION, roles.iter().copied().collect::<BTreeSet<_>>())])
            })
            .unwrap_or_default(),
        scopes: Scopes::all(),
    }
}

fn grid() -> impl Iterator<Item = (Resource, Action)> {
    Resource::ALL
        .into_iter()
        .flat_map(|resource| resource.actions().iter().map(move |action| (resource, *action)))
}

fn permission(resource: Resource, action: Action, negate: bool) -> Permission {
    Permission { negate, resource_type: resource.as_str().to_owned(), action: action.as_str().to_owned() }
}

/// The permissions of a site role beyond those of every user.
#[must_use]
pub fn of_site(role: SiteRole) -> Vec<Permission> {
    let (with, without) = (subject(&[role], None), subject(&[], None));
    grid()
        .filter(|(resource, action)| {
            let object = Object::site(*resource);
            decide(&with, *action, object) && !decide(&without, *action, object)
        })
        .map(|(resource, action)| permission(resource, action, false))
        .collect()
}

/// The permissions of an organization role beyond those of every member, including negative ones.
#[must_use]
pub fn of_organization(role: OrgRole) -> Vec<Permission> {
    let (with, without) = (subject(&[], Some(&[role])), subject(&[], Some(&[])));
    // Only an admin has every permission that a role could remove.
    let (full, less) = (subject(&[], Some(&[OrgRole::Admin])), subject(&[], Some(&[OrgRole::Admin, role])));
    grid()
        .filter_map(|(resource, action)| {
            let object = Object::in_organization(resource, ASKED_ORGANIZATION);
            let granted = decide(&with, action, object) && !decide(&without, action, object);
            let denied = decide(&full, action, object) && !decide(&less, action, object);
            (granted || denied).then(|| permission(resource, action, denied))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_described_by_what_they_add_or_take() {
        let has = |found: &[Permission], kind: &str, action: &str, negate: bool| {
            found.contains(&Permission { negate, resource_type: kind.to_owned(), action: action.to_owned() })
        };
        let admin = of_site(SiteRole::TemplateAdmin);
        assert!(has(&admin, "template", "create", false) && has(&admin, "provisioner_jobs", "read", false));
        assert!(!has(&admin, "user", "create", false));
        let ban = of_organization(OrgRole::WorkspaceCreationBan);
        assert_eq!(ban.len(), 2);
        assert!(has(&ban, "workspace", "create", true) && has(&ban, "workspace", "delete", true));
        assert!(has(&of_organization(OrgRole::UserAdmin), "organization_member", "create", false));
        assert!(has(&of_site(SiteRole::Owner), "audit_log", "read", false));
    }
}
