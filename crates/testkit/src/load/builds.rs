//! Workspace builds a second.

use std::time::Duration;

use anyhow::{Context, Result};
use coder_api::builds::CreateWorkspaceBuildRequest;
use coder_api::templates::CreateTemplateRequest;
use coder_api::workspaces::CreateWorkspaceRequest;
use coder_domain::build::Transition;
use coder_domain::ids::WorkspaceId;
use coder_wire::messages::provisioner::{Agent, App, Resource, agent};
use coder_wire::messages::provisionerd::acquired_job::{self, WorkspaceBuild};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::completions::Completions;
use super::{AsyncStep, Tags, Target, rate};
use crate::daemon::{FakeDaemon, build_result, import_result, import_update};

const STATE: &[u8] = br#"{"version":4,"serial":1,"lineage":"load","resources":[]}"#;
/// The token of agents that never connect.
const TOKEN: &str = "5f0c2f5e-8f4b-4f0e-9c1a-0b6f0d1c2e3a";

impl Target {
    /// Builds a second with this many daemons and clients, over `time`. Each client starts and stops a workspace of its
    /// own; a build is one POST, one acquire, one UpdateJob with 25 log lines and one CompleteJob with a state and a
    /// resource with one agent and one app.
    ///
    /// # Errors
    /// When a call fails.
    pub async fn builds(&self, daemons: usize, clients: usize, time: Duration) -> Result<f64> {
        let completions = Completions::default();
        let stop = CancellationToken::new();
        let mut workers = JoinSet::new();
        for daemon in self.daemons(daemons, "builds", |_| Tags::new()).await? {
            workers.spawn(work(daemon, completions.clone(), stop.clone(), |_| TOKEN.to_owned()));
        }
        let workspaces = self.workspaces(&completions, clients).await?;
        let step = |number: usize| BuildStep {
            target: self.clone(),
            completions: completions.clone(),
            workspace: workspaces[number],
            running: true,
        };
        let rate = rate(clients, time, step).await?;
        stop.cancel();
        while let Some(worker) = workers.join_next().await {
            worker??;
        }
        Ok(rate)
    }

    /// Makes a template and workspaces of it, one after the other, while daemons of this process work.
    pub(super) async fn workspaces(
        &self,
        completions: &Completions,
        count: usize,
    ) -> Result<Vec<WorkspaceId>> {
        let version = self.post(Tags::new()).await?;
        completions.wait(&version.job.id.to_string()).await?;
        let name = format!("load-{}", &version.id.to_string()[24..]);
        let request = CreateTemplateRequest {
            name: name.clone(),
            version_id: Some(version.id),
            ..CreateTemplateRequest::default()
        };
        let template = self.client.create_template(self.organization, &request).await?.id;
        let mut workspaces = Vec::with_capacity(count);
        for number in 0..count {
            let request = CreateWorkspaceRequest {
                template_id: Some(template),
                name: format!("{name}-{number}"),
                ..CreateWorkspaceRequest::default()
            };
            let workspace =
                self.client.create_workspace("me", &request).await.context("cannot create a workspace")?;
            completions.wait(&workspace.latest_build.job.id.to_string()).await?;
            workspaces.push(workspace.id);
        }
        Ok(workspaces)
    }
}

/// Stops the workspace when it runs, starts it otherwise.
struct BuildStep {
    target: Target,
    completions: Completions,
    workspace: WorkspaceId,
    running: bool,
}

impl AsyncStep for BuildStep {
    async fn step(&mut self) -> Result<()> {
        let transition = if self.running { Transition::Stop } else { Transition::Start };
        let request = CreateWorkspaceBuildRequest::new(transition);
        let build = self.target.client.create_build(self.workspace, &request).await?;
        self.running = !self.running;
        self.completions.wait(&build.job.id.to_string()).await
    }
}

/// Works until `stop`. `token` gives the token of a workspace's agent.
pub(super) async fn work(
    daemon: FakeDaemon,
    completions: Completions,
    stop: CancellationToken,
    token: impl Fn(&WorkspaceBuild) -> String,
) -> Result<()> {
    loop {
        let Some(job) = daemon.calls.acquire(stop.cancelled()).await? else {
            daemon.leave().await;
            return Ok(());
        };
        daemon.calls.update_job(&import_update(&job.job_id, 25, 0)).await?;
        let result = match &job.r#type {
            Some(acquired_job::Type::WorkspaceBuild(build)) => {
                build_result(&job.job_id, STATE, vec![machine(token(build))])
            }
            _ => import_result(&job.job_id),
        };
        daemon.calls.complete_job(&result).await?;
        completions.add(&job.job_id);
    }
}

fn machine(token: String) -> Resource {
    let app = App { slug: "editor".to_owned(), display_name: "Editor".to_owned(), ..App::default() };
    let agent = Agent {
        name: "main".to_owned(),
        operating_system: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        apps: vec![app],
        auth: Some(agent::Auth::Token(token)),
        ..Agent::default()
    };
    Resource {
        name: "machine".to_owned(),
        r#type: "terraform_data".to_owned(),
        agents: vec![agent],
        ..Resource::default()
    }
}
