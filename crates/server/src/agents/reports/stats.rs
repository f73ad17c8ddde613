//! Traffic and sessions: `UpdateStats` (agent 2.9). A workspace with connections counts as used, which extends its deadline.

use coder_wire::messages::coder::agent::v2 as pb;
use prost_types::Duration;

use crate::agents::connected_agents::SessionCounts;
use crate::agents::session::{AgentSession, Answer};

/// Notes the open sessions and the use of the workspace, and answers with the interval.
pub(in crate::agents) async fn update(
    session: &AgentSession,
    request: pb::UpdateStatsRequest,
) -> Answer<pb::UpdateStatsResponse> {
    if let Some(stats) = request.stats {
        session.registration.set_sessions(SessionCounts {
            vscode: stats.session_count_vscode.max(0),
            jetbrains: stats.session_count_jetbrains.max(0),
            reconnecting_pty: stats.session_count_reconnecting_pty.max(0),
            ssh: stats.session_count_ssh.max(0),
        });
        if stats.connection_count > 0 {
            session.app.pending.used(session.identity.workspace_id);
        }
    }
    let interval = Duration::try_from(session.app.config.schedules.agent_stats_every).ok();
    Ok(pb::UpdateStatsResponse { report_interval: interval })
}
