//! Agents that run as processes of the daemon's machine and outlive the job that started them (`coder_local_agent`).
//!
//! The processes belong to the daemon: a job reaches them through this provider only, and only those of its own workspace. A provider
//! without a runner does not have the type.

use std::future::Future;
use std::pin::Pin;

use coder_domain::secret::Secret;
use uuid::Uuid;

use crate::context::Context;
use crate::diagnostics::{Diagnostics, Path};
use crate::resource::local_agent;
use crate::value::Value;

/// A future that a trait object returns.
pub type BoxedFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts and ends agents.
pub trait LocalAgents: Send + Sync + 'static {
    /// Starts an agent. It runs until it is stopped or the daemon ends.
    fn start(&self, agent: LocalAgent) -> BoxedFuture<'_, Result<(), String>>;

    /// Whether an agent of a workspace was started and not stopped.
    fn is_running(&self, workspace: Uuid, agent: Uuid) -> bool;

    /// Stops an agent and waits for its end. An agent that does not run is not an error.
    fn stop(&self, workspace: Uuid, agent: Uuid) -> BoxedFuture<'_, ()>;
}

/// An agent to start.
#[derive(Clone, Debug)]
pub struct LocalAgent {
    /// The id of its resource.
    pub id: Uuid,
    /// The workspace, whose agents share a home directory.
    pub workspace: Uuid,
    /// The URL of the server.
    pub url: String,
    /// The agent's token.
    pub token: Secret,
}

/// The workspace of a job; none for imports.
fn workspace(context: &Context<'_>) -> Option<Uuid> {
    context.environment.get("CODER_WORKSPACE_ID").parse().ok()
}

fn id(state: &Value) -> Option<Uuid> {
    state.field("id").text_or_empty().parse().ok()
}

/// Whether the agent of a state still runs.
pub(crate) fn is_running(agents: &dyn LocalAgents, state: &Value, context: &Context<'_>) -> bool {
    workspace(context).zip(id(state)).is_some_and(|(workspace, id)| agents.is_running(workspace, id))
}

/// Starts the agent of a new state. The state is null when it does not run.
pub(crate) async fn start(
    agents: &dyn LocalAgents,
    state: &mut Value,
    context: &Context<'_>,
    diagnostics: &mut Diagnostics,
) {
    let result = match (workspace(context), id(state)) {
        (Some(workspace), Some(id)) => {
            let token = Secret::new(state.field(local_agent::TOKEN).text_or_empty());
            agents.start(LocalAgent { id, workspace, url: context.url.to_owned(), token }).await
        }
        _ => Err("the job belongs to no workspace".to_owned()),
    };
    if let Err(reason) = result {
        diagnostics.error(Path::default(), "the agent cannot be started on this machine", reason);
        *state = Value::Null;
    }
}

/// Stops the agent of a state that is removed.
pub(crate) async fn stop(agents: &dyn LocalAgents, state: &Value, context: &Context<'_>) {
    if let Some((workspace, id)) = workspace(context).zip(id(state)) {
        agents.stop(workspace, id).await;
    }
}
