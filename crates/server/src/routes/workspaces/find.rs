//! Loads workspaces.

use coder_api::paths::ME;
use coder_domain::ids::WorkspaceId;
use coder_domain::rbac::{Action, Object, Resource};
use coder_store::workspaces::{self, Workspace};
use coder_store::{Tx, users};

use crate::http::{Caller, Error, Result};

/// The RBAC object of a workspace.
pub const fn object(workspace: &Workspace) -> Object {
    Object::in_organization(Resource::Workspace, workspace.organization_id)
        .owned_by(workspace.owner_id)
        .with_id(workspace.id.0)
}

/// A workspace by id for this action. Deleted ones are not found.
pub async fn by_id(tx: &mut Tx, caller: &Caller, id: WorkspaceId, action: Action) -> Result<Workspace> {
    let workspace = workspaces::find(tx, id).await?.ok_or_else(Error::not_found)?;
    caller.require_visible(action, object(&workspace))?;
    Ok(workspace)
}

/// A workspace by owner and name. The caller needs the right to see the workspace, not its owner.
pub async fn by_name(
    tx: &mut Tx,
    caller: &Caller,
    user: &str,
    name: &str,
    deleted: bool,
) -> Result<Workspace> {
    let owner = match user.parse() {
        _ if user == ME => Some(caller.user.id),
        Ok(id) => Some(id),
        Err(_) => users::find_by_username(tx, user).await?.map(|found| found.id),
    };
    let owner = owner.ok_or_else(Error::not_found)?;
    let workspace = workspaces::find_by_name(tx, owner, name, deleted).await?.ok_or_else(Error::not_found)?;
    caller.require_visible(Action::Read, object(&workspace))?;
    Ok(workspace)
}
