//! The key pair of the workspace's owner, for Git in the workspace.

use axum::extract::State;
use coder_api::agents::AgentGitSshKey;
use coder_store::workspaces::agent_connections::AgentIdentity;
use coder_store::workspaces::agents;

use crate::agents::authenticate::AgentCaller;
use crate::context::App;
use crate::git_ssh_key;
use crate::http::{Error, Json, Result};

/// `GET /workspaceagents/me/gitsshkey`
pub async fn git_ssh_key(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
) -> Result<Json<AgentGitSshKey>> {
    require_user_data(&app, &identity).await?;
    let key = git_ssh_key::of(&app.store, identity.owner_id, app.now()).await?;
    Ok(Json(AgentGitSshKey { public_key: key.public_key, private_key: key.private_key }))
}

/// 403 unless the agent may have secrets of the workspace's owner: the account is active, and the template does not exclude it.
pub(super) async fn require_user_data(app: &App, identity: &AgentIdentity) -> Result<()> {
    if !identity.owner_active {
        return Err(Error::forbidden().detail("The account of the workspace's owner is suspended."));
    }
    let row = agents::find(&mut app.store.reader().await?, identity.agent_id).await?;
    let row = row.ok_or_else(Error::not_found)?;
    if row.definition.api_key_scope == "no_user_data" {
        return Err(
            Error::forbidden().detail("The template sets api_key_scope = \"no_user_data\" for this agent.")
        );
    }
    Ok(())
}
