//! Loads agents. Who may see a workspace may see its agents; agents of imports and dry runs have no workspace and are not found.

use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::workspaces::agent_connections::{self, AgentPlace};
use coder_store::workspaces::agents::{self, Agent};
use coder_store::workspaces::{self as rows, Workspace};

use crate::http::{Caller, Error, Result};
use crate::routes::workspaces;

/// An agent, the build that made it and its workspace, if the caller may do this to the workspace.
pub async fn by_id(
    tx: &mut Tx,
    caller: &Caller,
    id: AgentId,
    action: Action,
) -> Result<(Agent, AgentPlace, Workspace)> {
    let place = agent_connections::find_place(tx, id).await?.ok_or_else(Error::not_found)?;
    let workspace = rows::find(tx, place.workspace_id).await?.filter(|workspace| !workspace.deleted);
    let workspace = workspace.ok_or_else(Error::not_found)?;
    caller.require_visible(action, workspaces::find::object(&workspace))?;
    let agent = agents::find(tx, id).await?.ok_or_else(Error::not_found)?;
    Ok((agent, place, workspace))
}
