//! The log of an agent, as an array or followed (http-api 10.2).

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use coder_api::jobs::LogLevel;
use coder_api::paths;
use coder_api::resources::WorkspaceAgentLog;
use coder_domain::ids::AgentId;
use coder_domain::rbac::Action;
use coder_store::Store;
use coder_store::workspaces::agent_logs::{self, AgentLogLine};
use futures_util::stream;
use http::header::{self, HeaderValue};

use super::{find, follow};
use crate::context::App;
use crate::http::params::{Id, Query};
use crate::http::upgrade;
use crate::http::{Caller, Json, Result};
use crate::network::reading::Reading;

/// `GET /workspaceagents/{agent}/logs`
pub async fn logs(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<AgentId>,
    query: Query,
    mut request: Request,
) -> Result<Response> {
    let after = query.read("after")?.unwrap_or(0);
    let (_, _, workspace) = find::by_id(&mut app.store.reader().await?, &caller, id, Action::Read).await?;
    if query.get("follow").is_none() {
        return array(&app.store, id, after).await;
    }
    let user = caller.user.id;
    let reading = Reading::begin(&app, &caller).await?;
    let upgrade = match upgrade::check(&mut request) {
        Ok(upgrade) => upgrade,
        Err(refused) => return Ok(refused.into_response()),
    };
    let (response, connection) = upgrade.accept();
    let counted = app.metrics.socket(paths::AGENT_LOGS);
    app.clone().lifecycle.spawn("agent log follower", async move {
        let _counted = counted;
        match connection.await {
            Ok(connection) => {
                follow::follow(&app, (user, reading), (id, workspace.id), after, connection).await
            }
            Err(error) => tracing::debug!(%error, "the connection was gone before the log was followed"),
        }
    });
    Ok(response)
}

/// The API type of a line.
pub(super) fn view(line: AgentLogLine) -> WorkspaceAgentLog {
    WorkspaceAgentLog {
        id: line.id,
        created_at: line.created_at,
        output: line.line.output,
        level: LogLevel::from(line.line.level.as_str()),
        source_id: Some(line.source_id),
    }
}

async fn page(store: &Store, agent: AgentId, after: i64) -> coder_store::Result<Vec<WorkspaceAgentLog>> {
    let lines = agent_logs::list(&mut store.reader().await?, agent, after).await?;
    Ok(lines.into_iter().map(view).collect())
}

/// The lines after number `after`. One page is in memory while the peer reads.
async fn array(store: &Store, agent: AgentId, after: i64) -> Result<Response> {
    let first = page(store, agent, after).await?;
    if first.is_empty() {
        return Ok(Json::<_>(first).into_response());
    }
    let (store, begun) = (store.clone(), (Some(first), after, true));
    let pieces = stream::try_unfold(begun, move |(ready, after, is_first)| {
        let store = store.clone();
        async move {
            // Negative: the closing bracket was sent.
            if after < 0 {
                return Ok::<_, coder_store::Error>(None);
            }
            let lines = match ready {
                Some(lines) => lines,
                None => page(&store, agent, after).await?,
            };
            let Some(last) = lines.last().map(|line| line.id) else {
                return Ok(Some((Bytes::from_static(b"]\n"), (None, -1, false))));
            };
            let mut text = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                text.push(if is_first && index == 0 { b'[' } else { b',' });
                serde_json::to_writer(&mut text, line).expect("a line is made of texts and numbers");
            }
            Ok(Some((Bytes::from(text), (None, last, false))))
        }
    });
    let kind = HeaderValue::from_static("application/json; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(pieces)).into_response())
}
