//! What each built-in role allows, in the form of the official API. Nothing is written down twice: the decision itself is
//! asked about every resource and action.

use std::collections::{BTreeMap, BTreeSet};

use coder_api::users::Permission;
use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::rbac::{Action, Object, OrgRole, Resource, Scopes, SiteRole, Subject, decide};

/// The organization in which the question is put.
const HERE: OrganizationId = OrganizationId::NIL;

fn subject(site: &[SiteRole], organization: Option<&[OrgRole]>) -> Subject {
    Subject {
        user: UserId::random(),
        site: site.iter().copied().collect(),
        organizations: organization
            .map(|roles| BTreeMap::from([(HERE, roles.iter().copied().collect::<BTreeSet<_>>())]))
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

/// What a site role allows everywhere, beyond what everybody may.
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

/// What an organization role allows, or takes away, in its organization, beyond what every member may.
#[must_use]
pub fn of_organization(role: OrgRole) -> Vec<Permission> {
    let (with, without) = (subject(&[], Some(&[role])), subject(&[], Some(&[])));
    // Only an admin has everything that a role could take away.
    let (full, less) = (subject(&[], Some(&[OrgRole::Admin])), subject(&[], Some(&[OrgRole::Admin, role])));
    grid()
        .filter_map(|(resource, action)| {
            let object = Object::in_organization(resource, HERE);
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
