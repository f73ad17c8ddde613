//! Which workspace an agent belongs to, and who may connect to it.

use coder_domain::ids::AgentId;
use coder_domain::rbac::{Action, Subject, decide};
use coder_store::workspaces::agent_connections::{self, AgentPlace};
use coder_store::workspaces::{self, Workspace};
use coder_store::{Error, Tx};

use crate::routes::workspaces::find;

/// What an agent belongs to; none for the agents of imports, and when the agent or its workspace was deleted.
pub async fn find_place(tx: &mut Tx, id: AgentId) -> Result<Option<(AgentPlace, Workspace)>, Error> {
    let Some(place) = agent_connections::find_place(tx, id).await? else { return Ok(None) };
    let workspace = workspaces::find(tx, place.workspace_id).await?;
    Ok(workspace.filter(|workspace| !workspace.deleted).map(|workspace| (place, workspace)))
}

/// Whether a user or token may connect to a workspace (the action `ssh`).
#[must_use]
pub fn may_connect(subject: &Subject, workspace: &Workspace) -> bool {
    decide(subject, Action::Connect, find::object(workspace))
}
