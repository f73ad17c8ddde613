//! The agents of a workspace's latest build.

use coder_domain::build::Transition;
use coder_domain::ids::{JobId, WorkspaceId};
use coder_store::workspaces::agents::{self, Agent};
use coder_store::workspaces::{builds, resources};
use coder_store::{Error, Tx};

/// The agents in the order of the report, whatever the build does.
pub async fn list(tx: &mut Tx, workspace: WorkspaceId) -> Result<Vec<Agent>, Error> {
    match builds::find_latest(tx, workspace).await? {
        Some(build) => of_job(tx, build.job_id).await,
        None => Ok(Vec::new()),
    }
}

/// The same; none when the latest build stops or deletes the workspace.
pub async fn list_started(tx: &mut Tx, workspace: WorkspaceId) -> Result<Option<Vec<Agent>>, Error> {
    let build = builds::find_latest(tx, workspace).await?;
    match build.filter(|build| build.transition == Transition::Start) {
        Some(build) => of_job(tx, build.job_id).await.map(Some),
        None => Ok(None),
    }
}

async fn of_job(tx: &mut Tx, job: JobId) -> Result<Vec<Agent>, Error> {
    let made: Vec<_> = resources::list(tx, &[job]).await?.into_iter().map(|resource| resource.id).collect();
    agents::list(tx, &made).await
}
