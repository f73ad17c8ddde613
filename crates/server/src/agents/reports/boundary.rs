//! What processes behind a boundary tried to reach: `ReportBoundaryLogs`. It is written to the server's log.

use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::boundary_log::Resource;

use crate::agents::session::{AgentSession, Answer};

/// Requests of one report that are written.
const MAX_REQUESTS: usize = 100;
/// Characters of a method, URL or rule that are written.
const MAX_CHARS: usize = 512;

/// Writes the requests to the log.
pub(in crate::agents) async fn report(
    session: &AgentSession,
    request: pb::ReportBoundaryLogsRequest,
) -> Answer<pb::ReportBoundaryLogsResponse> {
    let (agent, workspace) = (session.identity.agent_id, session.identity.workspace_id);
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    for log in request.logs.iter().take(MAX_REQUESTS) {
        if let Some(Resource::HttpRequest(http)) = &log.resource {
            // A query may hold a token.
            let url = http.url.split(['?', '#']).next().unwrap_or_default();
            tracing::info!(
                agent_id = %agent,
                workspace_id = %workspace,
                allowed = log.allowed,
                method = cut(&http.method),
                url = cut(url),
                rule = cut(&http.matched_rule),
                "boundary request"
            );
        }
    }
    Ok(pb::ReportBoundaryLogsResponse {})
}
