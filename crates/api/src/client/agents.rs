//! Calls about agents and the ways to reach them.

use coder_domain::ids::{AgentId, WorkspaceId};
use http::Method;

use super::{Client, Error};
use crate::agents::WorkspaceUsage;
use crate::deployment::{AgentConnectionInfo, Regions, SshConfig};
use crate::paths;
use crate::resources::WorkspaceAgent;

/// Every method fails with what [`Error`] describes.
#[expect(clippy::missing_errors_doc, reason = "said once for the block")]
impl Client {
    /// An agent.
    pub async fn agent(&self, agent: AgentId) -> Result<WorkspaceAgent, Error> {
        self.get(&paths::agent(agent), &[]).await
    }

    /// How to reach an agent; a 404 when the caller may not.
    pub async fn agent_connection(&self, agent: AgentId) -> Result<AgentConnectionInfo, Error> {
        self.get(&paths::agent_connection(agent), &[]).await
    }

    /// How to reach agents.
    pub async fn agents_connection(&self) -> Result<AgentConnectionInfo, Error> {
        self.get(paths::AGENTS_CONNECTION, &[]).await
    }

    /// The host names and options of `coder config-ssh`.
    pub async fn ssh_config(&self) -> Result<SshConfig, Error> {
        self.get(paths::DEPLOYMENT_SSH, &[]).await
    }

    /// The places from which apps are served.
    pub async fn regions(&self) -> Result<Regions, Error> {
        self.get(paths::REGIONS, &[]).await
    }

    /// Reports that a workspace is in use.
    pub async fn report_usage(&self, workspace: WorkspaceId, usage: &WorkspaceUsage) -> Result<(), Error> {
        self.send_without_answer(Method::POST, &paths::workspace_usage(workspace), usage).await
    }
}
