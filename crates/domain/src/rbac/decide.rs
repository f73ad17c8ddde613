//! The one decision: may this subject do this action to this object?

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::role::{everybody_allows, member_allows, own_allows, own_personal_allows};
use super::{Action, OrgRole, Resource, Scopes, SiteRole};
use crate::ids::{OrganizationId, UserId};

/// The user or token that acts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub user: UserId,
    pub site: BTreeSet<SiteRole>,
    /// Memberships, each with the roles held there.
    pub organizations: BTreeMap<OrganizationId, BTreeSet<OrgRole>>,
    /// What the presented token may be used for at most.
    pub scopes: Scopes,
}

/// The object of the action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its kind.
    pub resource: Resource,
    /// The organization it belongs to, if any.
    pub organization: Option<OrganizationId>,
    /// The user it belongs to, if any.
    pub owner: Option<UserId>,
    /// Its id, if a token's allow list may name it.
    pub id: Option<Uuid>,
}

impl Object {
    /// An object of the whole site.
    #[must_use]
    pub const fn site(resource: Resource) -> Self {
        Self { resource, organization: None, owner: None, id: None }
    }

    /// An object of an organization.
    #[must_use]
    pub const fn in_organization(resource: Resource, organization: OrganizationId) -> Self {
        Self { resource, organization: Some(organization), owner: None, id: None }
    }

    /// The same object, owned by a user.
    #[must_use]
    pub const fn owned_by(self, owner: UserId) -> Self {
        Self { owner: Some(owner), ..self }
    }

    /// The same object, with its id.
    #[must_use]
    pub const fn with_id(self, id: Uuid) -> Self {
        Self { id: Some(id), ..self }
    }
}

/// Decides. The token's scopes limit everything. A site role is enough anywhere. In an organization, a denial takes
/// precedence over every grant of that organization (scheduling-and-auth 4.6, 4.7).
#[must_use]
pub fn decide(subject: &Subject, action: Action, object: Object) -> bool {
    let resource = object.resource;
    if !subject.scopes.allow(resource, action, object.id) {
        return false;
    }
    if everybody_allows(resource, action) || subject.site.iter().any(|role| role.allows(resource, action)) {
        return true;
    }
    let own = object.owner == Some(subject.user);
    if own && own_personal_allows(resource, action) {
        return true;
    }
    let Some(roles) = object.organization.and_then(|id| subject.organizations.get(&id)) else { return false };
    if roles.iter().any(|role| role.denies(resource, action)) {
        return false;
    }
    roles.iter().any(|role| role.allows(resource, action))
        || member_allows(resource, action)
        || (own && own_allows(resource, action))
}

/// Which rows of a list a subject may read; the store receives it as parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Every row.
    Everything,
    /// Rows of these organizations, and the subject's own.
    Some {
        /// Organizations whose rows are all visible.
        organizations: Vec<OrganizationId>,
        /// The user whose own rows are also visible.
        own: UserId,
    },
}

/// Computes what [`decide`] would answer row by row for reading `resource`. A token whose allow list names single objects
/// sees none in lists.
#[must_use]
pub fn visibility(subject: &Subject, resource: Resource) -> Visibility {
    if !subject.scopes.allow(resource, Action::Read, None) {
        // No user has the nil id, so no row belongs to it.
        return Visibility::Some { organizations: Vec::new(), own: UserId::NIL };
    }
    if decide(subject, Action::Read, Object::site(resource)) {
        return Visibility::Everything;
    }
    let readable =
        |id: &OrganizationId| decide(subject, Action::Read, Object::in_organization(resource, *id));
    let organizations = subject.organizations.keys().copied().filter(readable).collect();
    Visibility::Some { organizations, own: subject.user }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(site: &[SiteRole], organization: Option<(OrganizationId, &[OrgRole])>) -> Subject {
        Subject {
            user: UserId::random(),
            site: site.iter().copied().collect(),
            organizations: organization
                .into_iter()
                .map(|(id, r)| (id, r.iter().copied().collect()))
                .collect(),
            scopes: Scopes::all(),
        }
    }

    #[test]
    fn documented_flow_8_who_may_do_what() {
        let org = OrganizationId::random();
        let daemon = Object::in_organization(Resource::ProvisionerDaemon, org);
        let jobs = Object::in_organization(Resource::ProvisionerJob, org);
        let member = subject(&[], Some((org, &[])));
        assert!(decide(&member, Action::Read, daemon));
        assert!(!decide(&member, Action::Create, daemon));
        assert!(!decide(&member, Action::Read, jobs));
        assert!(decide(&member, Action::Create, daemon.owned_by(member.user)), "scope=user");
        assert!(!decide(&member, Action::Create, daemon.owned_by(UserId::random())));
        let admin = subject(&[SiteRole::TemplateAdmin], Some((org, &[])));
        assert!(decide(&admin, Action::Create, daemon) && decide(&admin, Action::Read, jobs));
        let stranger = subject(&[], Some((OrganizationId::random(), &[OrgRole::Admin])));
        assert!(!decide(&stranger, Action::Read, daemon));
        assert!(!decide(&stranger, Action::Create, daemon.owned_by(stranger.user)));
    }

    #[test]
    fn a_token_sees_no_more_than_its_scopes() {
        let org = OrganizationId::random();
        let mut owner = subject(&[SiteRole::Owner], Some((org, &[])));
        owner.scopes = Scopes::parse(["workspace:read"], []).expect("a known scope");
        let workspace = Object::in_organization(Resource::Workspace, org);
        assert!(decide(&owner, Action::Read, workspace));
        assert!(!decide(&owner, Action::Delete, workspace));
        assert!(!decide(&owner, Action::Read, Object::site(Resource::User).owned_by(owner.user)));
        assert_eq!(visibility(&owner, Resource::Workspace), Visibility::Everything);
        let hidden = Visibility::Some { organizations: Vec::new(), own: UserId::NIL };
        assert_eq!(visibility(&owner, Resource::Template), hidden);
    }

    #[test]
    fn a_creation_ban_beats_organization_admin_and_ownership() {
        let org = OrganizationId::random();
        let user = subject(&[], Some((org, &[OrgRole::Admin, OrgRole::WorkspaceCreationBan])));
        let workspace = Object::in_organization(Resource::Workspace, org).owned_by(user.user);
        assert!(!decide(&user, Action::Create, workspace));
        assert!(decide(&user, Action::Start, workspace));
    }

    #[test]
    fn a_list_shows_exactly_what_decide_allows() {
        let (org, other) = (OrganizationId::random(), OrganizationId::random());
        let user = subject(&[], Some((org, &[OrgRole::TemplateAdmin])));
        let rows = [(org, user.user), (org, UserId::random()), (other, UserId::random())];
        let Visibility::Some { organizations, own } = visibility(&user, Resource::Workspace) else {
            panic!("an organization role does not see everything")
        };
        for (organization, owner) in rows {
            let object = Object::in_organization(Resource::Workspace, organization).owned_by(owner);
            let listed = organizations.contains(&organization) || own == owner;
            assert_eq!(listed, decide(&user, Action::Read, object));
        }
    }
}
