//! Loads builds. Who may see the workspace may see its builds.

use coder_domain::ids::BuildId;
use coder_domain::rbac::Action;
use coder_store::Tx;
use coder_store::workspaces::builds::{self, Build};
use coder_store::workspaces::{self as rows, Workspace};

use crate::http::{Caller, Error, Result};
use crate::routes::workspaces;

/// A build and its workspace, if the caller may do this to the workspace.
pub async fn by_id(tx: &mut Tx, caller: &Caller, id: BuildId, action: Action) -> Result<(Build, Workspace)> {
    let build = builds::find(tx, id).await?.ok_or_else(Error::not_found)?;
    let workspace = rows::find(tx, build.workspace_id).await?.ok_or_else(Error::not_found)?;
    caller.require_visible(action, workspaces::find::object(&workspace))?;
    Ok((build, workspace))
}
