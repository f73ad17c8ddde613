//! One connected agent, as its calls see it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use coder_domain::agent::MonitorState;
use coder_domain::protocol::ApiVersion;
use coder_store::workspaces::agent_connections::AgentIdentity;
use coder_store::workspaces::agents::{self, Agent};
use coder_wire::drpc::Status;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::connected_agents::AgentRegistration;
use super::pace::Pace;
use super::reports::boundary::Written;
use crate::context::App;
use crate::http::AccessUrl;
use crate::network::tailnet_service::TailnetService;

/// The states of one agent's monitors, by volume; none is memory.
pub(super) type Monitors = HashMap<Option<String>, MonitorState>;

/// One connected agent.
pub(super) struct AgentSession {
    pub(super) app: App,
    pub(super) identity: AgentIdentity,
    pub(super) version: ApiVersion,
    pub(super) registration: Arc<AgentRegistration>,
    /// The URL at which the agent reaches the server.
    pub(super) url: AccessUrl,
    /// The calls of the overlay network.
    pub(super) tailnet: TailnetService,
    /// The agent as its build made it; it does not change.
    row: OnceCell<Agent>,
    /// Whether its log is full: further lines are refused without asking the database.
    pub(super) log_full: AtomicBool,
    pub(super) monitors: Mutex<Monitors>,
    /// What was written to the server's log.
    pub(super) boundary: Mutex<Written>,
    pub(super) pace: Pace,
}

/// What a call is answered with.
pub(super) type Answer<T> = Result<T, Status>;

impl AgentSession {
    pub(super) fn new(
        app: App,
        identity: AgentIdentity,
        version: ApiVersion,
        registration: Arc<AgentRegistration>,
        url: AccessUrl,
    ) -> Self {
        let tailnet = TailnetService::of_agent(app.clone(), identity.agent_id, &url);
        Self {
            app,
            url,
            tailnet,
            identity,
            version,
            registration,
            row: OnceCell::new(),
            log_full: AtomicBool::new(false),
            monitors: Mutex::default(),
            boundary: Mutex::new(Written::new()),
            pace: Pace::new(),
        }
    }

    pub(super) const fn identity(&self) -> &AgentIdentity {
        &self.identity
    }

    /// The agent as its build made it.
    pub(super) async fn row(&self) -> Answer<&Agent> {
        let load = || async {
            let found = agents::find(&mut self.app.store.reader().await?, self.identity.agent_id).await?;
            found.ok_or(coder_store::Error::NotFound { table: "workspace_agents" })
        };
        self.row.get_or_try_init(load).await.map_err(|error| self.failed(&error))
    }

    /// The answer when the database failed.
    pub(super) fn failed(&self, error: &coder_store::Error) -> Status {
        let agent = self.identity.agent_id;
        if let coder_store::Error::Stale { .. } | coder_store::Error::NotFound { .. } = error {
            return Status::new("the agent was removed");
        }
        tracing::warn!(agent_id = %agent, %error, "a call of an agent failed");
        Status::new("the server's database failed, see its log")
    }
}
