//! What can be done to a resource.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Create an object.
    Create,
    /// Read an object.
    Read,
    /// Change an object.
    Update,
    /// Delete an object.
    Delete,
    /// Build something from it: templates.
    Use,
    /// Start a workspace.
    Start,
    /// Stop a workspace.
    Stop,
    /// Connect to a workspace.
    Connect,
    /// Open a workspace's apps.
    ApplicationConnect,
    /// See one's own profile and settings.
    ReadPersonal,
    /// Change one's own profile, password and keys.
    UpdatePersonal,
    /// See who uses it and how: templates.
    ViewInsights,
}

impl Action {
    pub const ALL: [Self; 12] = [
        Self::Create,
        Self::Read,
        Self::Update,
        Self::Delete,
        Self::Use,
        Self::Start,
        Self::Stop,
        Self::Connect,
        Self::ApplicationConnect,
        Self::ReadPersonal,
        Self::UpdatePersonal,
        Self::ViewInsights,
    ];

    /// The official name (scheduling-and-auth 4.6).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Read => "read",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Use => "use",
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Connect => "ssh",
            Self::ApplicationConnect => "application_connect",
            Self::ReadPersonal => "read_personal",
            Self::UpdatePersonal => "update_personal",
            Self::ViewInsights => "view_insights",
        }
    }
}
