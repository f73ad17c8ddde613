//! Loads agents. Who may see a workspace may see its agents; agents of imports and dry runs have no workspace and are not found.

use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::workspaces::Workspace;
use coder_store::workspaces::agent_connections::AgentPlace;
use coder_store::workspaces::agents::{self, Agent};

use crate::http::{Caller, Error, Result};
use crate::network::access::find_place;
use crate::routes::workspaces;

/// An agent, the build that made it and its workspace, if the caller may do this to the workspace.
pub async fn by_id(
    tx: &mut Tx,
    caller: &Caller,
    id: AgentId,
    action: Action,
) -> Result<(Agent, AgentPlace, Workspace)> {
    let (place, workspace) = find_place(tx, id).await?.ok_or_else(Error::not_found)?;
    caller.require_visible(action, workspaces::find::object(&workspace))?;
    let agent = agents::find(tx, id).await?.ok_or_else(Error::not_found)?;
    Ok((agent, place, workspace))
}
