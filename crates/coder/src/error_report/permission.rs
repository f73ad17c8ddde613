//! Missing permissions, and the roles that have them. The table lists common calls; the roles are computed from the
//! rules.

use std::collections::{BTreeMap, BTreeSet};

use coder_domain::ids::{OrganizationId, UserId};
use coder_domain::rbac::{Action, Object, OrgRole, Resource, Scopes, SiteRole, Subject, decide};

use super::client_error::Explained;

/// Method, a part of the path, what the call does, and the required permission. The first match counts. Workspaces and
/// tokens are not listed: every user has some, and the server explains a refusal.
const CALLS: &[(&str, &str, &str, Resource, Action)] = &[
    ("POST", "/provisionerkeys", "create provisioner keys", Resource::ProvisionerDaemon, Action::Create),
    ("PATCH", "/provisionerkeys", "change provisioner keys", Resource::ProvisionerDaemon, Action::Update),
    ("DELETE", "/provisionerkeys", "delete provisioner keys", Resource::ProvisionerDaemon, Action::Delete),
    (
        "GET",
        "/provisionerdaemons/serve",
        "run provisioner daemons for the organization",
        Resource::ProvisionerDaemon,
        Action::Create,
    ),
    ("", "/provisionerdaemons/", "drain provisioner daemons", Resource::ProvisionerDaemon, Action::Update),
    ("GET", "/provisionerjobs", "see provisioner jobs", Resource::ProvisionerJob, Action::Read),
    ("POST", "/files", "push templates", Resource::File, Action::Create),
    ("POST", "/templateversions", "push templates", Resource::Template, Action::Update),
    ("POST", "/templates", "create templates", Resource::Template, Action::Create),
    ("PATCH", "/templates/", "change templates", Resource::Template, Action::Update),
    ("DELETE", "/templates/", "delete templates", Resource::Template, Action::Delete),
    ("POST", "/members/", "add members to the organization", Resource::OrganizationMember, Action::Create),
    (
        "DELETE",
        "/members/",
        "remove members of the organization",
        Resource::OrganizationMember,
        Action::Delete,
    ),
    ("PUT", "/members/", "change roles in the organization", Resource::AssignOrgRole, Action::Create),
    ("POST", "/organizations", "create organizations", Resource::Organization, Action::Create),
    ("PATCH", "/organizations/", "change organizations", Resource::Organization, Action::Update),
    ("DELETE", "/organizations/", "delete organizations", Resource::Organization, Action::Delete),
    ("PUT", "/roles", "change the roles of users", Resource::AssignRole, Action::Create),
    ("PUT", "/password", "change the passwords of other users", Resource::User, Action::Update),
    ("PUT", "/status", "suspend and activate users", Resource::User, Action::Update),
    ("POST", "/users", "create users", Resource::User, Action::Create),
    ("DELETE", "/users/", "delete users", Resource::User, Action::Delete),
    ("GET", "/users", "see other users", Resource::User, Action::Read),
];

pub(super) fn explain(method: &str, path: &str, server_text: &str) -> Explained {
    let fits = |(of, piece, ..): &&(&str, &str, &str, Resource, Action)| {
        (of.is_empty() || *of == method)
            && path.contains(*piece)
            && !path.contains("/workspace")
            && !path.contains("/keys")
    };
    // A server message other than "Forbidden" is more precise.
    let reason = if server_text.eq_ignore_ascii_case("forbidden") {
        String::new()
    } else {
        format!(": {server_text}")
    };
    let Some((_, _, what, resource, action)) = CALLS.iter().find(fits) else {
        return Explained {
            message: format!("you have no permission to do this{reason}"),
            hint: Some("ask an administrator for a role that allows it (`coder whoami -o table -c roles` shows yours); a token may also be limited by its scopes".to_owned()),
        };
    };
    let roles = roles(*resource, *action);
    Explained {
        message: format!("you have no permission to {what}{reason}"),
        hint: Some(format!(
            "this needs one of these roles: {}; ask an administrator for one",
            roles.join(", ")
        )),
    }
}

/// Display names of the roles that allow an action, site roles first.
fn roles(resource: Resource, action: Action) -> Vec<&'static str> {
    let organization = OrganizationId::random();
    let object = Object::in_organization(resource, organization);
    let allows = |site: &[SiteRole], of_organization: &[OrgRole]| {
        let subject = Subject {
            user: UserId::random(),
            site: site.iter().copied().collect::<BTreeSet<_>>(),
            organizations: BTreeMap::from([(organization, of_organization.iter().copied().collect())]),
            scopes: Scopes::all(),
        };
        decide(&subject, action, object)
    };
    let site = SiteRole::ALL.iter().filter(|role| allows(&[**role], &[])).map(|role| role.display_name());
    let own = OrgRole::ALL.iter().filter(|role| allows(&[], &[**role])).map(|role| role.display_name());
    site.chain(own).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roles_that_allow_a_call_are_named() {
        let explained = explain("POST", "/api/v2/organizations/x/provisionerkeys", "Forbidden");
        assert_eq!(explained.message, "you have no permission to create provisioner keys");
        let hint = explained.hint.unwrap();
        for role in ["Owner", "Template Admin", "Organization Admin"] {
            assert!(hint.contains(role), "{hint}");
        }
        assert!(!hint.contains("Auditor"), "{hint}");
    }

    #[test]
    fn every_call_of_the_table_is_allowed_to_somebody() {
        for (method, path, what, resource, action) in CALLS {
            let names = roles(*resource, *action);
            assert!(names.contains(&"Owner"), "{method} {path}: {what} {names:?}");
            assert!(names.len() < SiteRole::ALL.len() + OrgRole::ALL.len(), "{what} needs no role");
        }
    }

    #[test]
    fn an_unknown_call_repeats_what_the_server_says() {
        let explained = explain("GET", "/api/v2/audit", "only auditors");
        assert_eq!(explained.message, "you have no permission to do this: only auditors");
    }
}
