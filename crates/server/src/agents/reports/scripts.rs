//! How scripts ended: `ScriptCompleted`. The newest run of each script in each stage is kept, for the timings of the build.

use coder_domain::ids::ScriptId;
use coder_store::workspaces::agent_reports::{self, ScriptTiming};
use coder_wire::drpc::Status;
use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::timing::{Stage, Status as ScriptStatus};

use super::{id, instant};
use crate::agents::session::{AgentSession, Answer};

/// Stores the run of a script.
pub(in crate::agents) async fn completed(
    session: &AgentSession,
    request: pb::WorkspaceAgentScriptCompletedRequest,
) -> Answer<pb::WorkspaceAgentScriptCompletedResponse> {
    let timing = request.timing.ok_or_else(|| Status::new("the timing is missing"))?;
    let script_id = ScriptId(id(&timing.script_id, "the id of a script")?);
    if !session.row().await?.definition.scripts.iter().any(|script| script.id == script_id) {
        return Err(Status::new(format!("the agent has no script {script_id}")));
    }
    let started = timing.start.and_then(instant).ok_or_else(|| Status::new("the start time is missing"))?;
    let ended = timing.end.and_then(instant).ok_or_else(|| Status::new("the end time is missing"))?;
    if started > ended {
        return Err(Status::new("the script ended before it started"));
    }
    let stage = match Stage::try_from(timing.stage) {
        Ok(Stage::Start) => "start",
        Ok(Stage::Stop) => "stop",
        Ok(Stage::Cron) => "cron",
        Err(_) => return Err(Status::new(format!("unknown stage {}", timing.stage))),
    };
    let status = match ScriptStatus::try_from(timing.status) {
        Ok(ScriptStatus::Ok) => "ok",
        Ok(ScriptStatus::ExitFailure) => "exit_failure",
        Ok(ScriptStatus::TimedOut) => "timed_out",
        Ok(ScriptStatus::PipesLeftOpen) => "pipes_left_open",
        Err(_) => return Err(Status::new(format!("unknown status {}", timing.status))),
    };
    let row = ScriptTiming {
        agent_id: session.identity.agent_id,
        script_id,
        stage: stage.to_owned(),
        status: status.to_owned(),
        exit_code: i64::from(timing.exit_code),
        started_at: started,
        ended_at: ended,
    };
    let written = async {
        let mut tx = session.app.store.single().await?;
        agent_reports::upsert_script_timing(&mut tx, &row).await
    };
    written.await.map_err(|error| session.failed(&error))?;
    Ok(pb::WorkspaceAgentScriptCompletedResponse {})
}
