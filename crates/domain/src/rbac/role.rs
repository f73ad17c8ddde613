//! The built-in roles and what each allows (scheduling-and-auth 4.6), as a table.

use std::str::FromStr;

use super::{Action, Resource};
use crate::job::UnknownVariant;

/// A role that applies everywhere. `member` is implied for every user and never stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SiteRole {
    /// Everything.
    Owner,
    /// Templates, files, provisioner daemons and keys everywhere.
    TemplateAdmin,
    /// Users, groups and memberships.
    UserAdmin,
    /// Reads audit, templates, users and the deployment.
    Auditor,
}

/// A role inside one organization. `organization-member` is implied by membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OrgRole {
    /// Everything in the organization.
    Admin,
    /// Templates, files, daemons, keys and jobs of the organization.
    TemplateAdmin,
    /// Members of the organization.
    UserAdmin,
    /// Reads templates and audit of the organization.
    Auditor,
    /// Denies creating and deleting workspaces.
    WorkspaceCreationBan,
}

macro_rules! words {
    ($kind:ident, $what:literal, $($variant:ident = $word:literal / $display:literal,)*) => {
        impl $kind {
            /// All roles of this level.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name used in JSON and in the database.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),* }
            }

            #[must_use]
            pub const fn display_name(self) -> &'static str {
                match self { $(Self::$variant => $display),* }
            }
        }

        impl FromStr for $kind {
            type Err = UnknownVariant;
            fn from_str(word: &str) -> Result<Self, UnknownVariant> {
                match word {
                    $($word => Ok(Self::$variant),)*
                    _ => Err(UnknownVariant { what: $what, value: word.to_owned() }),
                }
            }
        }
    };
}

words! { SiteRole, "role",
    Owner = "owner" / "Owner",
    TemplateAdmin = "template-admin" / "Template Admin",
    UserAdmin = "user-admin" / "User Admin",
    Auditor = "auditor" / "Auditor",
}

words! { OrgRole, "organization role",
    Admin = "organization-admin" / "Organization Admin",
    TemplateAdmin = "organization-template-admin" / "Organization Template Admin",
    UserAdmin = "organization-user-admin" / "Organization User Admin",
    Auditor = "organization-auditor" / "Organization Auditor",
    WorkspaceCreationBan = "organization-workspace-creation-ban" / "Organization Workspace Creation Ban",
}

use Action::{
    ApplicationConnect, Connect, Create, Delete, Read, ReadPersonal, Start, Stop, Update, UpdatePersonal,
    Use, ViewInsights,
};

const CRUD: &[Action] = &[Create, Read, Update, Delete];

type Grant = (Resource, &'static [Action]);

const TEMPLATE_ADMIN: &[Grant] = &[
    (Resource::Template, &[Create, Read, Update, Delete, Use, ViewInsights]),
    (Resource::File, &[Create, Read]),
    (Resource::Workspace, &[Read]),
    (Resource::ProvisionerDaemon, CRUD),
    // Documented for template admins. The official server does not implement it (documented-flow 8 overrides CONF-4).
    (Resource::ProvisionerJob, &[Create, Read, Update]),
    (Resource::User, &[Read]),
    (Resource::Organization, &[Read]),
    (Resource::OrganizationMember, &[Read]),
    (Resource::AssignOrgRole, &[Read]),
];

const USER_ADMIN: &[Grant] = &[
    (Resource::User, &[Create, Read, Update, Delete, ReadPersonal, UpdatePersonal]),
    (Resource::Organization, &[Read]),
    (Resource::OrganizationMember, CRUD),
    (Resource::AssignOrgRole, &[Create, Read, Delete]),
];

const AUDITOR: &[Grant] = &[
    (Resource::AuditLog, &[Read]),
    (Resource::Template, &[Read, ViewInsights]),
    (Resource::User, &[Read]),
    (Resource::Organization, &[Read]),
    (Resource::OrganizationMember, &[Read]),
    (Resource::Deployment, &[Read]),
];

const ORG_TEMPLATE_ADMIN: &[Grant] = &[
    (Resource::Template, &[Create, Read, Update, Delete, Use, ViewInsights]),
    (Resource::File, &[Create, Read]),
    (Resource::Workspace, &[Read]),
    (Resource::ProvisionerDaemon, CRUD),
    (Resource::ProvisionerJob, &[Create, Read, Update]),
];

const ORG_USER_ADMIN: &[Grant] =
    &[(Resource::OrganizationMember, CRUD), (Resource::AssignOrgRole, &[Create, Read, Delete])];

const ORG_AUDITOR: &[Grant] = &[(Resource::AuditLog, &[Read]), (Resource::Template, &[Read, ViewInsights])];

/// What every member of an organization may do to the organization's objects.
const ORG_MEMBER: &[Grant] = &[
    (Resource::Organization, &[Read]),
    (Resource::OrganizationMember, &[Read]),
    (Resource::AssignOrgRole, &[Read]),
    (Resource::ProvisionerDaemon, &[Read]),
    (Resource::Template, &[Read, Use]),
];

/// What every user may do to their own objects in an organization of theirs.
const MEMBER_OWN_OBJECTS: &[Grant] = &[
    (Resource::Workspace, &[Create, Read, Update, Delete, Start, Stop, Connect, ApplicationConnect]),
    (Resource::ProvisionerDaemon, CRUD),
    (Resource::File, &[Create, Read]),
];

/// What every user may do to their own objects anywhere.
const OWN_PERSONAL: &[Grant] = &[
    (Resource::User, &[Read, ReadPersonal, UpdatePersonal]),
    (Resource::ApiKey, CRUD),
    (Resource::File, &[Create, Read]),
];

/// What every user may do to any object: the site role `member`, which every user has.
const EVERY_MEMBER: &[Grant] = &[(Resource::AssignRole, &[Read])];

const fn contains(grants: &[Grant], resource: Resource, action: Action) -> bool {
    let mut row = 0;
    while row < grants.len() {
        if grants[row].0 as u8 == resource as u8 {
            let mut column = 0;
            while column < grants[row].1.len() {
                if grants[row].1[column] as u8 == action as u8 {
                    return true;
                }
                column += 1;
            }
        }
        row += 1;
    }
    false
}

impl SiteRole {
    pub(super) const fn allows(self, resource: Resource, action: Action) -> bool {
        match self {
            Self::Owner => true,
            Self::TemplateAdmin => contains(TEMPLATE_ADMIN, resource, action),
            Self::UserAdmin => contains(USER_ADMIN, resource, action),
            Self::Auditor => contains(AUDITOR, resource, action),
        }
    }
}

impl OrgRole {
    pub(super) const fn allows(self, resource: Resource, action: Action) -> bool {
        match self {
            Self::Admin => !matches!(
                (resource, action),
                (Resource::Workspace, Connect | ApplicationConnect)
                    | (Resource::AssignRole | Resource::Deployment | Resource::User | Resource::ApiKey, _)
                    | (Resource::Organization, Create)
            ),
            Self::TemplateAdmin => contains(ORG_TEMPLATE_ADMIN, resource, action),
            Self::UserAdmin => contains(ORG_USER_ADMIN, resource, action),
            Self::Auditor => contains(ORG_AUDITOR, resource, action),
            Self::WorkspaceCreationBan => false,
        }
    }

    pub(super) const fn denies(self, resource: Resource, action: Action) -> bool {
        matches!((self, resource, action), (Self::WorkspaceCreationBan, Resource::Workspace, Create | Delete))
    }
}

pub(super) const fn everybody_allows(resource: Resource, action: Action) -> bool {
    contains(EVERY_MEMBER, resource, action)
}

pub(super) const fn member_allows(resource: Resource, action: Action) -> bool {
    contains(ORG_MEMBER, resource, action)
}

pub(super) const fn own_allows(resource: Resource, action: Action) -> bool {
    contains(MEMBER_OWN_OBJECTS, resource, action)
}

pub(super) const fn own_personal_allows(resource: Resource, action: Action) -> bool {
    contains(OWN_PERSONAL, resource, action)
}
