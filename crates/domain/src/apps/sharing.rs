//! Who may open an app (agent 6.3).

use std::str::FromStr;

use crate::rbac::{Action, Object, Resource, Subject, decide};

/// With whom an app or a port is shared, from the fewest people to the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SharingLevel {
    Owner,
    /// Members of the workspace's organization.
    Organization,
    /// Everybody who is signed in.
    Authenticated,
    Public,
}

impl SharingLevel {
    /// All levels, from the fewest people to the most.
    pub const ALL: [Self; 4] = [Self::Owner, Self::Organization, Self::Authenticated, Self::Public];

    /// The word of the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Organization => "organization",
            Self::Authenticated => "authenticated",
            Self::Public => "public",
        }
    }
}

/// The word is not a sharing level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown sharing level")]
pub struct UnknownLevel;

impl FromStr for SharingLevel {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Self::ALL.into_iter().find(|level| level.as_str() == text).ok_or(UnknownLevel)
    }
}

/// How an app is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessMethod {
    /// Under a path of the server's own host, so that its scripts could act as the user who opens it.
    Path,
    /// On a host name of its own.
    Subdomain,
}

/// What is allowed although apps under a path share the server's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathAppRules {
    /// `--dangerous-allow-path-app-sharing`
    pub sharing: bool,
    /// `--dangerous-allow-path-app-site-owner-access`
    pub site_owner_access: bool,
}

/// The level that counts for an app.
#[must_use]
pub const fn effective_level(method: AccessMethod, level: SharingLevel, rules: PathAppRules) -> SharingLevel {
    match method {
        AccessMethod::Path if !rules.sharing => SharingLevel::Owner,
        AccessMethod::Path | AccessMethod::Subdomain => level,
    }
}

/// Whether a visitor may open an app of `workspace`; `None` for one who is not signed in.
#[must_use]
pub fn may_open(
    method: AccessMethod,
    level: SharingLevel,
    visitor: Option<&Subject>,
    workspace: Object,
    rules: PathAppRules,
) -> bool {
    let level = effective_level(method, level, rules);
    let Some(visitor) = visitor else { return level == SharingLevel::Public };
    let is_foreign = workspace.owner != Some(visitor.user);
    if method == AccessMethod::Path && level == SharingLevel::Owner && is_foreign && !rules.site_owner_access
    {
        return false;
    }
    if decide(visitor, Action::ApplicationConnect, workspace) {
        return true;
    }
    // The token must be good for apps at all.
    let has_scope = visitor.scopes.allow(Resource::Workspace, Action::ApplicationConnect, None);
    match level {
        SharingLevel::Owner => false,
        SharingLevel::Organization => {
            has_scope && workspace.organization.is_some_and(|id| visitor.organizations.contains_key(&id))
        }
        SharingLevel::Authenticated => has_scope,
        // Whoever presents a limited token could leave it out.
        SharingLevel::Public => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{OrganizationId, UserId};
    use crate::rbac::{Scopes, SiteRole};

    struct People {
        workspace: Object,
        owner: Subject,
        member: Subject,
        other: Subject,
        admin: Subject,
    }

    fn subject(user: UserId, organization: Option<OrganizationId>, site: &[SiteRole]) -> Subject {
        let organizations = organization.into_iter().map(|id| (id, [].into())).collect();
        Subject { user, site: site.iter().copied().collect(), organizations, scopes: Scopes::all() }
    }

    fn people() -> People {
        let (owner, organization) = (UserId::random(), OrganizationId::random());
        People {
            workspace: Object::in_organization(Resource::Workspace, organization).owned_by(owner),
            owner: subject(owner, Some(organization), &[]),
            member: subject(UserId::random(), Some(organization), &[]),
            other: subject(UserId::random(), Some(OrganizationId::random()), &[]),
            admin: subject(UserId::random(), None, &[SiteRole::Owner]),
        }
    }

    /// Owner, member, other user, site owner, nobody.
    fn row(method: AccessMethod, level: SharingLevel, rules: PathAppRules) -> [bool; 5] {
        let people = people();
        let ask = |visitor| may_open(method, level, visitor, people.workspace, rules);
        [
            ask(Some(&people.owner)),
            ask(Some(&people.member)),
            ask(Some(&people.other)),
            ask(Some(&people.admin)),
            ask(None),
        ]
    }

    #[test]
    fn levels_on_subdomains() {
        let row = |level| row(AccessMethod::Subdomain, level, PathAppRules::default());
        assert_eq!(row(SharingLevel::Owner), [true, false, false, true, false]);
        assert_eq!(row(SharingLevel::Organization), [true, true, false, true, false]);
        assert_eq!(row(SharingLevel::Authenticated), [true, true, true, true, false]);
        assert_eq!(row(SharingLevel::Public), [true; 5]);
    }

    #[test]
    fn paths_are_for_the_owner_alone() {
        for level in SharingLevel::ALL {
            let row = row(AccessMethod::Path, level, PathAppRules::default());
            assert_eq!(row, [true, false, false, false, false], "{level:?}");
        }
        let admins = PathAppRules { site_owner_access: true, sharing: false };
        assert_eq!(row(AccessMethod::Path, SharingLevel::Public, admins), [true, false, false, true, false]);
        let shared = PathAppRules { sharing: true, site_owner_access: false };
        assert_eq!(row(AccessMethod::Path, SharingLevel::Owner, shared), [true, false, false, false, false]);
        assert_eq!(
            row(AccessMethod::Path, SharingLevel::Organization, shared),
            [true, true, false, true, false]
        );
        assert_eq!(row(AccessMethod::Path, SharingLevel::Public, shared), [true; 5]);
    }

    #[test]
    fn token_needs_the_scope_of_apps_unless_the_app_is_public() {
        let people = people();
        let ask = |scope: &str, level| {
            let scopes = Scopes::parse([scope], []).unwrap();
            let visitor = Subject { scopes, ..people.member.clone() };
            may_open(
                AccessMethod::Subdomain,
                level,
                Some(&visitor),
                people.workspace,
                PathAppRules::default(),
            )
        };
        assert!(ask("coder:application_connect", SharingLevel::Authenticated));
        assert!(!ask("template:read", SharingLevel::Authenticated));
        assert!(!ask("template:read", SharingLevel::Organization));
        assert!(ask("template:read", SharingLevel::Public));
    }

    #[test]
    fn levels_are_ordered_by_people() {
        assert!(SharingLevel::ALL.is_sorted());
        for level in SharingLevel::ALL {
            assert_eq!(level.as_str().parse(), Ok(level));
        }
        assert_eq!("everyone".parse::<SharingLevel>(), Err(UnknownLevel));
    }
}
