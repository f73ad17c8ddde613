//! What processes behind a boundary tried to reach: `ReportBoundaryLogs`. It is written to the server's log.

use std::time::Duration;

use tokio::time::Instant;

use coder_wire::messages::coder::agent::v2 as pb;
use coder_wire::messages::coder::agent::v2::boundary_log::Resource;

use crate::agents::session::{AgentSession, Answer};

/// Requests of one report that are written.
const MAX_REQUESTS: usize = 100;
/// Characters of a method, URL or rule that are written.
const MAX_CHARS: usize = 512;
/// Requests of one connection that are written in this time.
const MAX_WINDOW_REQUESTS: usize = 600;
const COUNT_WINDOW: Duration = Duration::from_secs(60);

/// How many requests were written.
#[derive(Debug)]
pub(in crate::agents) struct Written {
    since: Instant,
    count: usize,
}

impl Written {
    pub(in crate::agents) fn new() -> Self {
        Self { since: Instant::now(), count: 0 }
    }

    /// How many of `wanted` further ones may be written.
    fn admit(&mut self, wanted: usize) -> usize {
        if self.since.elapsed() >= COUNT_WINDOW {
            *self = Self::new();
        }
        let admitted = wanted.min(MAX_WINDOW_REQUESTS - self.count);
        self.count += admitted;
        admitted
    }
}

/// Writes the requests to the log.
pub(in crate::agents) async fn report(
    session: &AgentSession,
    request: pb::ReportBoundaryLogsRequest,
) -> Answer<pb::ReportBoundaryLogsResponse> {
    let (agent, workspace) = (session.identity.agent_id, session.identity.workspace_id);
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    let admitted = session.boundary.lock().admit(request.logs.len().min(MAX_REQUESTS));
    for log in request.logs.iter().take(admitted) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn flood_does_not_fill_the_log() {
        let mut written = Written::new();
        let admitted: usize = (0..50).map(|_| written.admit(100)).sum();
        assert_eq!(admitted, MAX_WINDOW_REQUESTS);
        tokio::time::advance(COUNT_WINDOW).await;
        assert_eq!(written.admit(100), 100);
    }
}
