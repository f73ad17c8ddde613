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
use crate::http::Result;
use crate::http::params::Query;
use crate::http::watch::{self, View, Watch};

struct Claims {
    app: App,
    agent: AgentId,
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
    let changes = app.events.subscribe(Topic::Workspace(identity.workspace_id));
    watch::events(&app, None, Claims { app: app.clone(), agent: identity.agent_id }, changes)
}
