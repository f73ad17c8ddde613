//! One connection of an agent, from its beginning to its end (agent 2.10).

use std::sync::Arc;
use std::time::Duration;

use coder_domain::ids::AgentId;
use coder_domain::protocol::ApiVersion;
use coder_store::workspaces::agent_connections::{self, AgentIdentity};
use coder_wire::bytes::ByteStream;
use coder_wire::{agent, mux};
use tokio_util::sync::CancellationToken;

use super::connected_agents::AgentRegistration;
use super::session::AgentSession;
use crate::context::App;
use crate::events::Topic;
use crate::http::AccessUrl;

/// Interval of pings, and the time for an answer: a connection that broke without a word ends within twice that.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// A connection that was authenticated and does not run yet.
pub struct Connection {
    app: App,
    identity: AgentIdentity,
    version: ApiVersion,
    registration: Arc<AgentRegistration>,
    url: AccessUrl,
}

impl Connection {
    /// Enters the agent in the list of connected agents. `url` is where it reaches the server.
    #[must_use]
    pub fn new(app: App, identity: AgentIdentity, version: ApiVersion, url: AccessUrl) -> Self {
        let registration = Arc::new(app.agents.register(identity.agent_id));
        Self { app, identity, version, registration, url }
    }

    /// Serves the agent until it disconnects, its token ends, or the server stops.
    pub async fn run(self, io: impl ByteStream) {
        let Self { app, identity, version, registration, url } = self;
        let (agent, workspace) = (identity.agent_id, identity.workspace_id);
        let name = connection_name(&app, &registration);
        if let Err(error) = connected(&app, &identity, &name).await {
            tracing::warn!(agent_id = %agent, workspace_id = %workspace, %error, "cannot store that an agent connected");
            return;
        }
        tracing::info!(agent_id = %agent, workspace_id = %workspace, api_version = %version, "agent connected");
        // The agents of a user share memory with each other, and with the user's requests.
        let holder = app.memory.holder(identity.owner_id.0.as_u128()).connection();
        let config = mux::Config {
            keepalive_interval: PING_INTERVAL,
            keepalive_timeout: PING_INTERVAL,
            ..mux::Config::default()
        };
        let session = mux::Session::accounted(io, config, holder.memory().clone(), holder.unread());
        let service = AgentSession::new(app.clone(), identity, version, Arc::clone(&registration), url);
        let reason = serve(&app, &session, Arc::new(service), registration.close()).await;
        tracing::info!(agent_id = %agent, workspace_id = %workspace, %reason, "agent disconnected");
        // After a stop of the server the agent comes back in a moment, or counts as disconnected without a contact.
        if !app.lifecycle.soft().is_cancelled()
            && let Err(error) = disconnected(&app, agent, &name).await
        {
            tracing::debug!(agent_id = %agent, %error, "cannot store that an agent disconnected");
        }
        app.events.workspace_changed(workspace);
    }
}

/// The name of a connection in the database; it begins with that of this server process.
fn connection_name(app: &App, registration: &AgentRegistration) -> String {
    format!("{} {}", app.events.outbox().own().simple(), registration.connection().simple())
}

async fn connected(app: &App, identity: &AgentIdentity, name: &str) -> Result<(), coder_store::Error> {
    let mut tx = app.store.single().await?;
    agent_connections::connect(&mut tx, identity.agent_id, name, app.now()).await?;
    drop(tx);
    app.events.workspace_changed(identity.workspace_id);
    Ok(())
}

async fn disconnected(app: &App, agent: AgentId, name: &str) -> Result<(), coder_store::Error> {
    let mut tx = app.store.single().await?;
    agent_connections::disconnect(&mut tx, agent, name, app.now()).await.map(|_| ())
}

async fn serve(
    app: &App,
    session: &mux::Session,
    service: Arc<AgentSession>,
    close: &CancellationToken,
) -> mux::Error {
    let (agent, workspace) = (service.identity().agent_id, service.identity().workspace_id);
    // Subscribed before the first check, so that no build is missed.
    let mut changes = app.events.subscribe(Topic::Workspace(workspace));
    let mut serving = std::pin::pin!(agent::serve(session, service));
    let closing = async {
        while is_allowed(app, agent).await {
            tokio::select! {
                () = changes.changed() => {}
                () = close.cancelled() => break,
                () = app.lifecycle.soft().cancelled() => break,
            }
        }
        session.close().await;
    };
    tokio::select! {
        reason = serving.as_mut() => reason,
        () = closing => serving.await,
    }
}

/// Whether the agent may stay connected. While the database is unavailable it may; `tasks/agents.rs` asks again.
async fn is_allowed(app: &App, agent: AgentId) -> bool {
    let found = async {
        let mut tx = app.store.reader().await?;
        agent_connections::list_allowed(&mut tx, &[agent]).await
    };
    match found.await {
        Ok(allowed) => !allowed.is_empty(),
        Err(error) => {
            tracing::debug!(agent_id = %agent, %error, "cannot check the build of an agent");
            true
        }
    }
}
