//! Kinds of things that are protected.

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// A user account.
    User,
    /// An API token or session.
    ApiKey,
    /// An organization.
    Organization,
    /// A membership.
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
    /// The audit log.
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
