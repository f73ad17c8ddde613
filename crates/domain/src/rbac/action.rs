//! What can be done to a resource.

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Action {
    /// Make a new one.
    Create,
    /// See it.
    Read,
    /// Change it.
    Update,
    /// Remove it.
    Delete,
    /// Build something from it: templates.
    Use,
    /// Start a workspace.
    Start,
    /// Stop a workspace.
    Stop,
    /// Connect to a workspace.
    Connect,
    /// Change one's own profile, password and keys.
    UpdatePersonal,
}

impl Action {
    /// All actions.
    pub const ALL: [Self; 9] = [
        Self::Create,
        Self::Read,
        Self::Update,
        Self::Delete,
        Self::Use,
        Self::Start,
        Self::Stop,
        Self::Connect,
        Self::UpdatePersonal,
    ];
}
