//! Tells an agent when it belongs to another workspace. Only prebuilt workspaces that are claimed do, and there are none here: the
//! stream stays open and says nothing, until the agent's token ends.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use coder_domain::ids::AgentId;
use coder_store::workspaces::agent_connections;

use crate::agents::authenticate::AgentCaller;
use crate::context::App;
use crate::events::Topic;
use crate::http::open_count::OpenPermit;
use crate::http::params::Query;
use crate::http::watch::{self, View, Watch};
use crate::http::{Error, Result};

/// What one agent may have open. It needs one; those of lost connections stay for a while.
pub const MOST_CLAIM_STREAMS: usize = 8;

struct Claims {
    app: App,
    agent: AgentId,
    _permit: OpenPermit<AgentId>,
}

impl Watch for Claims {
    async fn read(&mut self) -> Result<View> {
        let allowed =
            agent_connections::list_allowed(&mut self.app.store.reader().await?, &[self.agent]).await?;
        Ok(if allowed.is_empty() { View::Gone } else { View::Nothing })
    }
}

/// `GET /workspaceagents/me/reinit`
pub async fn reinit(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
    query: Query,
) -> Result<Response> {
    // Our agents need no connection that never says anything (docs/extensions.md).
    if query.text("optional") == "true" {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let permit = app.claim_streams.admit(identity.agent_id).ok_or_else(|| {
        Error::new(StatusCode::TOO_MANY_REQUESTS, "This agent waits for the claim of its workspace already.")
            .detail(format!("An agent may have {MOST_CLAIM_STREAMS} such streams open: end one of them."))
    })?;
    let changes = app.events.subscribe(Topic::Workspace(identity.workspace_id));
    watch::events(&app, None, Claims { app: app.clone(), agent: identity.agent_id, _permit: permit }, changes)
}
