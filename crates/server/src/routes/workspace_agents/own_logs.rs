//! Log lines and sources of programs that run beside the agent with its token, for example one that builds its image.

use axum::extract::State;
use coder_api::agents::{AppendAgentLogs, NewLogSource};
use coder_api::error::Message;
use coder_api::jobs::LogLevel;
use coder_api::resources::AgentLogSource;
use coder_domain::ids::LogSourceId;
use coder_store::jobs::logs::Level;
use coder_store::workspaces::agent_logs::{self, LogSource};
use coder_store::workspaces::agents;
use http::StatusCode;

use crate::agents::authenticate::AgentCaller;
use crate::agents::reports::logs::{LogError, store};
use crate::context::App;
use crate::http::body::{self, Created};
use crate::http::{Error, Json, Result};

/// Longest name and longest icon of a source, in bytes.
const MAX_TEXT_BYTES: usize = 256;

/// `PATCH /workspaceagents/me/logs`: 413 when the log is full.
pub async fn append_logs(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
    Json(request): Json<AppendAgentLogs>,
) -> Result<Json<Message>> {
    if request.logs.is_empty() {
        return Err(Error::bad_request("No logs provided."));
    }
    let row = agents::find(&mut app.store.reader().await?, identity.agent_id).await?;
    let row = row.ok_or_else(Error::not_found)?;
    let source = request.log_source_id.unwrap_or(LogSourceId::NIL);
    let lines = request.logs.into_iter().map(|log| (level(&log.level), log.output)).collect();
    match store(&app, &identity, &row, source, lines).await {
        Ok(true) => Ok(body::message("Logs appended.")),
        Ok(false) => Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "Logs limit exceeded")
            .detail("The log of an agent holds 1 MiB. Further lines are dropped.")),
        Err(LogError::Store(error)) => Err(error.into()),
        Err(error) => Err(Error::invalid("log_source_id", error)),
    }
}

fn level(level: &LogLevel) -> Level {
    match level {
        LogLevel::Trace => Level::Trace,
        LogLevel::Debug => Level::Debug,
        LogLevel::Warn => Level::Warn,
        LogLevel::Error => Level::Error,
        _ => Level::Info,
    }
}

/// `POST /workspaceagents/me/log-source`: also 201 when it is there already.
pub async fn create_log_source(
    State(app): State<App>,
    AgentCaller(identity): AgentCaller,
    Json(request): Json<NewLogSource>,
) -> Result<Created<AgentLogSource>> {
    if request.id.is_nil() {
        return Err(Error::invalid("id", "It must not be the zero UUID."));
    }
    for (field, text) in [("display_name", &request.display_name), ("icon", &request.icon)] {
        if text.len() > MAX_TEXT_BYTES {
            return Err(Error::invalid(field, format!("It has more than {MAX_TEXT_BYTES} bytes.")));
        }
    }
    let asked = LogSource {
        agent_id: identity.agent_id,
        id: request.id,
        display_name: request.display_name,
        icon: request.icon,
        created_at: app.now(),
    };
    agent_logs::insert_source(&mut app.store.single().await?, &asked).await?;
    let sources = agent_logs::list_sources(&mut app.store.reader().await?, &[identity.agent_id]).await?;
    let made = sources.into_iter().find(|source| source.id == asked.id);
    let made = made.ok_or_else(|| Error::bad_request("The agent has too many log sources."))?;
    app.events.workspace_changed(identity.workspace_id);
    Ok(Created(view(made)))
}

fn view(row: LogSource) -> AgentLogSource {
    AgentLogSource {
        workspace_agent_id: row.agent_id,
        id: row.id,
        created_at: row.created_at,
        display_name: row.display_name,
        icon: row.icon,
    }
}
