//! Which workspace an agent belongs to, and who may connect to it.

use coder_domain::ids::AgentId;
use coder_domain::rbac::{Action, Subject, decide};
use coder_store::workspaces::agents::{self, Agent};
use coder_store::workspaces::{self, Workspace, builds, resources};
use coder_store::{Error, Tx};

use crate::routes::workspaces::find;

/// An agent with its workspace; none for the agents of imports, and when either was deleted.
///
/// # Errors
/// Only when the database fails.
pub async fn find_agent(tx: &mut Tx, id: AgentId) -> Result<Option<(Agent, Workspace)>, Error> {
    let Some(agent) = agents::find(tx, id).await? else { return Ok(None) };
    let Some(resource) = resources::find(tx, agent.resource_id).await? else { return Ok(None) };
    let Some(build) = builds::find_by_job(tx, resource.job_id).await? else { return Ok(None) };
    let workspace = workspaces::find(tx, build.workspace_id).await?;
    Ok(workspace.filter(|workspace| !workspace.deleted).map(|workspace| (agent, workspace)))
}

/// Whether a user or token may connect to a workspace (the action `ssh`).
#[must_use]
pub fn may_connect(subject: &Subject, workspace: &Workspace) -> bool {
    decide(subject, Action::Connect, find::object(workspace))
}
