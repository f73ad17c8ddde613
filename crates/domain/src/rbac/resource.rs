//! The kinds of protected objects.

use super::Action;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// A user account.
    User,
    /// An API token or session.
    ApiKey,
    Organization,
    OrganizationMember,
    /// Granting a site role.
    AssignRole,
    /// Granting an organization role.
    AssignOrgRole,
    /// A template and its versions.
    Template,
    /// An uploaded file.
    File,
    /// A workspace and its builds.
    Workspace,
    /// A provisioner daemon or a provisioner key.
    ProvisionerDaemon,
    /// A provisioner job as the jobs list shows it.
    ProvisionerJob,
    /// The server's configuration and health.
    Deployment,
    AuditLog,
}

impl Resource {
    /// All kinds.
    pub const ALL: [Self; 13] = [
        Self::User,
        Self::ApiKey,
        Self::Organization,
        Self::OrganizationMember,
        Self::AssignRole,
        Self::AssignOrgRole,
        Self::Template,
        Self::File,
        Self::Workspace,
        Self::ProvisionerDaemon,
        Self::ProvisionerJob,
        Self::Deployment,
        Self::AuditLog,
    ];
}

impl Resource {
    /// The official name (scheduling-and-auth 4.6).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::ApiKey => "api_key",
            Self::Organization => "organization",
            Self::OrganizationMember => "organization_member",
            Self::AssignRole => "assign_role",
            Self::AssignOrgRole => "assign_org_role",
            Self::Template => "template",
            Self::File => "file",
            Self::Workspace => "workspace",
            Self::ProvisionerDaemon => "provisioner_daemon",
            Self::ProvisionerJob => "provisioner_jobs",
            Self::Deployment => "deployment_config",
            Self::AuditLog => "audit_log",
        }
    }

    /// The possible actions on such an object.
    #[must_use]
    pub const fn actions(self) -> &'static [Action] {
        use Action::{
            ApplicationConnect, Connect, Create, Delete, Read, ReadPersonal, Start, Stop, Update,
            UpdatePersonal, Use, ViewInsights,
        };
        match self {
            Self::User => &[Create, Read, Update, Delete, ReadPersonal, UpdatePersonal],
            Self::ApiKey
            | Self::Organization
            | Self::OrganizationMember
            | Self::AssignOrgRole
            | Self::ProvisionerDaemon => &[Create, Read, Update, Delete],
            Self::AssignRole => &[Create, Read, Delete],
            Self::Template => &[Create, Read, Update, Delete, Use, ViewInsights],
            Self::File | Self::AuditLog => &[Create, Read],
            Self::Workspace => &[Create, Read, Update, Delete, Start, Stop, Connect, ApplicationConnect],
            Self::ProvisionerJob => &[Create, Read, Update],
            Self::Deployment => &[Read, Update],
        }
    }
}
