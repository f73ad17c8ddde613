//! Log lines: `BatchCreateLogs`, and `PATCH /workspaceagents/me/logs` (agent 2.6).

use std::sync::atomic::Ordering;

use coder_domain::agent::split_line;
use coder_domain::ids::{AgentId, LogSourceId};
use coder_store::jobs::logs::Level;
use coder_store::transaction;
use coder_store::workspaces::agent_connections::AgentIdentity;
use coder_store::workspaces::agent_logs::{self, AgentLogOutcome, LogSource, NewAgentLogLine};
use coder_store::workspaces::agents::Agent;
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::log::Level as WireLevel;
use uuid::uuid;

use super::id;
use crate::agents::session::{AgentSession, Answer};
use crate::context::App;

/// The source of lines from outside of the agent, for example of a program that builds its image.
pub const EXTERNAL_SOURCE: LogSourceId = LogSourceId(uuid!("3b579bf4-1ed8-4b99-87a8-e9a1e3410410"));
/// Its name.
const EXTERNAL_NAME: &str = "External";

/// Why lines were not stored.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The source is not one of the agent's.
    #[error("the agent has no log source {0}")]
    UnknownSource(LogSourceId),
    /// The database failed.
    #[error(transparent)]
    Store(#[from] coder_store::Error),
}

/// Stores lines of a connected agent.
pub(in crate::agents) async fn append(
    session: &AgentSession,
    request: pb::BatchCreateLogsRequest,
) -> Answer<pb::BatchCreateLogsResponse> {
    if session.log_full.load(Ordering::Relaxed) {
        return Ok(pb::BatchCreateLogsResponse { log_limit_exceeded: true });
    }
    let source = LogSourceId(id(&request.log_source_id, "the id of the log source")?);
    let lines = request.logs.into_iter().map(|log| (level(log.level), log.output)).collect();
    let row = session.row().await?;
    let stored = store(&session.app, &session.identity, row, source, lines).await;
    let stored = stored.map_err(|error| match error {
        LogError::Store(error) => session.failed(&error),
        error => Status::new(error.to_string()),
    })?;
    if !stored {
        session.log_full.store(true, Ordering::Relaxed);
    }
    Ok(pb::BatchCreateLogsResponse { log_limit_exceeded: !stored })
}

/// An unknown level counts as info.
fn level(number: i32) -> Level {
    match WireLevel::try_from(number) {
        Ok(WireLevel::Trace) => Level::Trace,
        Ok(WireLevel::Debug) => Level::Debug,
        Ok(WireLevel::Warn) => Level::Warn,
        Ok(WireLevel::Error) => Level::Error,
        Ok(WireLevel::Unspecified | WireLevel::Info) | Err(_) => Level::Info,
    }
}

/// Stores lines of one source; says whether there was room for them.
///
/// # Errors
/// [`LogError::UnknownSource`].
pub async fn store(
    app: &App,
    identity: &AgentIdentity,
    row: &Agent,
    source: LogSourceId,
    lines: Vec<(Level, String)>,
) -> Result<bool, LogError> {
    let agent = identity.agent_id;
    let source = if source.is_nil() { EXTERNAL_SOURCE } else { source };
    if !row.definition.scripts.iter().any(|script| script.log_source_id == source) {
        find_source(app, agent, source).await?;
    }
    let split = |(level, output): (Level, String)| {
        let parts: Vec<_> =
            split_line(&output).map(|part| NewAgentLogLine { level, output: part.to_owned() }).collect();
        parts
    };
    let lines: Vec<_> = lines.into_iter().flat_map(split).collect();
    if lines.is_empty() {
        return Ok(true);
    }
    let now = app.now();
    let outcome = transaction!(app.store, coder_store::Error, |tx| {
        agent_logs::append(tx, agent, source, &lines, now).await
    })?;
    match outcome {
        AgentLogOutcome::Stored(first) => {
            app.events.agent_logs_changed(agent);
            // Clients that watch the workspace show from now on that there is a log.
            if first == 1 {
                app.events.workspace_changed(identity.workspace_id);
            }
        }
        AgentLogOutcome::Overflowed(newly) => {
            if newly {
                tracing::info!(agent_id = %agent, workspace_id = %identity.workspace_id, "the log of an agent is full");
                app.events.workspace_changed(identity.workspace_id);
            }
        }
    }
    Ok(matches!(outcome, AgentLogOutcome::Stored(_)))
}

/// Checks that the agent has this source. The external one is made when it is used first.
async fn find_source(app: &App, agent: AgentId, source: LogSourceId) -> Result<(), LogError> {
    let known = agent_logs::list_sources(&mut app.store.reader().await?, &[agent]).await?;
    if known.iter().any(|known| known.id == source) {
        return Ok(());
    }
    if source != EXTERNAL_SOURCE {
        return Err(LogError::UnknownSource(source));
    }
    let made = LogSource {
        agent_id: agent,
        id: source,
        display_name: EXTERNAL_NAME.to_owned(),
        icon: String::new(),
        created_at: app.now(),
    };
    Ok(agent_logs::insert_source(&mut app.store.single().await?, &made).await?)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn unknown_levels_are_info() {
        assert_eq!([level(0), level(3), level(77), level(-1)], [Level::Info; 4]);
        assert_eq!(
            [level(1), level(2), level(4), level(5)],
            [Level::Trace, Level::Debug, Level::Warn, Level::Error]
        );
        assert_eq!(EXTERNAL_SOURCE.0.get_version_num(), 4);
        assert_ne!(EXTERNAL_SOURCE.0, Uuid::nil());
    }
}
