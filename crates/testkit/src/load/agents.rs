//! Very many agents with nothing to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coder_agent::{Agent, Config, HttpTransport, User};
use coder_api::client::{Client, Options};
use coder_api::resources::AgentStatus;
use coder_domain::clock::SystemClock;
use coder_domain::ids::WorkspaceId;
use coder_domain::secret::Secret;
use coder_wire::messages::provisionerd::acquired_job::WorkspaceBuild;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::builds::work;
use super::completions::Completions;
use super::{Tags, Target};
use crate::wait::poll_within;

/// Fake daemons that build the workspaces.
const DAEMONS: usize = 4;
/// How long one agent may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);

/// Agents as they run in workspaces, all in this process, each of a workspace of its own. They end with this value.
pub struct Agents {
    /// The time from the start of the first until the last was connected.
    pub connected_in: Duration,
    _running: JoinSet<()>,
    _files: tempfile::TempDir,
}

impl Agents {
    /// Makes workspaces and connects their agents.
    ///
    /// # Errors
    /// When a call fails, or an agent does not connect.
    pub async fn connect(target: &Target, count: usize) -> Result<Self> {
        let tokens: Arc<Mutex<HashMap<WorkspaceId, Secret>>> = Arc::default();
        let workspaces = {
            let completions = Completions::default();
            let stop = CancellationToken::new();
            let mut workers = JoinSet::new();
            for daemon in target.daemons(DAEMONS, "agents", |_| Tags::new()).await? {
                let tokens = Arc::clone(&tokens);
                let token = move |build: &WorkspaceBuild| {
                    let token = Uuid::new_v4().to_string();
                    let id = build.metadata.as_ref().and_then(|metadata| metadata.workspace_id.parse().ok());
                    if let Some(id) = id {
                        let mut tokens = tokens.lock().unwrap_or_else(PoisonError::into_inner);
                        tokens.insert(id, Secret::new(token.clone()));
                    }
                    token
                };
                workers.spawn(work(daemon, completions.clone(), stop.clone(), token));
            }
            let workspaces = target.workspaces(&completions, count).await?;
            stop.cancel();
            while let Some(worker) = workers.join_next().await {
                worker??;
            }
            workspaces
        };
        let files = tempfile::tempdir()?;
        let begin = Instant::now();
        let mut running = JoinSet::new();
        for workspace in &workspaces {
            let token = tokens.lock().unwrap_or_else(PoisonError::into_inner).remove(workspace);
            let token = token.context("a build without a token")?;
            let client = Client::new(target.client.base().as_str(), Some(token.clone()), Options::default())?;
            let agent = Agent::new(config(token, &files), Arc::new(HttpTransport::new(client)));
            running.spawn(agent.run(CancellationToken::new()));
        }
        for workspace in workspaces {
            let connected =
                poll_within(CONNECT_TIMEOUT, async || match is_connected(target, workspace).await {
                    Ok(false) => None,
                    Ok(true) => Some(Ok(())),
                    Err(error) => Some(Err(error)),
                });
            connected.await.context("an agent does not connect")??;
        }
        Ok(Self { connected_in: begin.elapsed(), _running: running, _files: files })
    }
}

async fn is_connected(target: &Target, workspace: WorkspaceId) -> Result<bool> {
    let workspace = target.client.workspace(workspace).await?;
    let mut agents = workspace.latest_build.resources.iter().flat_map(|resource| &resource.agents);
    Ok(agents.any(|agent| agent.status == AgentStatus::Connected))
}

fn config(token: Secret, files: &tempfile::TempDir) -> Config {
    Config {
        token,
        version: crate::daemon::BUILD_VERSION.trim_start_matches('v').to_owned(),
        log_dir: files.path().to_owned(),
        script_data_dir: files.path().to_owned(),
        program: "/bin/false".into(),
        environment: Default::default(),
        user: User { name: "load".to_owned(), home: files.path().to_owned(), shell: "/bin/sh".into() },
        subsystems: Vec::new(),
        ssh_max_timeout: Duration::from_secs(3600),
        block_file_transfer: false,
        log_file: None,
        clock: Arc::new(SystemClock),
    }
}
