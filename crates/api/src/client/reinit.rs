//! Waiting for the message that an agent belongs to another workspace (agent 1.4).

use std::time::Duration;

use http::Method;

use super::error::Call;
use super::request::failed;
use super::{Client, Error};
use crate::paths;

/// Longest event.
const EVENT_LIMIT: usize = 64 << 10;
/// How long the answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How the wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reinit {
    /// A prebuilt workspace was given to a user: the agent starts again.
    Claimed,
    /// The server has closed the stream.
    Closed,
    /// This server has no prebuilt workspaces, so there is nothing to wait for (docs/extensions.md).
    Never,
}

impl Client {
    /// Waits for the message. The session is the agent's token.
    ///
    /// # Errors
    /// As for every call, and when the stream is silent for too long.
    pub async fn agent_reinit(&self) -> Result<Reinit, Error> {
        let url = self.url(paths::AGENT_REINIT, &[("optional", "true")]);
        let call = Call::new(Method::GET, &url);
        let request = self.server.http.get(url).header(http::header::ACCEPT, "text/event-stream");
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.execute(&call, request, ANSWER_TIMEOUT));
        let mut response =
            answer.await.map_err(|_| call.timeout(ANSWER_TIMEOUT, "waiting for the answer"))??;
        if response.status() == http::StatusCode::NO_CONTENT {
            return Ok(Reinit::Never);
        }
        let silence = self.server.timeouts.log_silence;
        let mut events = Vec::new();
        loop {
            let chunk = tokio::time::timeout(silence, response.chunk()).await;
            let chunk = chunk.map_err(|_| call.timeout(silence, "waiting for events"))?;
            let Some(chunk) = chunk.map_err(|error| failed(&call, error, silence))? else {
                return Ok(Reinit::Closed);
            };
            if events.len() + chunk.len() > EVENT_LIMIT {
                return Err(Error::TooLarge { at: call, limit: EVENT_LIMIT });
            }
            events.extend_from_slice(&chunk);
            while let Some(end) = events.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = events.drain(..end + 2).collect();
                if is_claim(&String::from_utf8_lossy(&event)) {
                    return Ok(Reinit::Claimed);
                }
            }
        }
    }
}

fn is_claim(event: &str) -> bool {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let reason = field("data:").and_then(|data| serde_json::from_str::<serde_json::Value>(data).ok());
    field("event:").is_none_or(|kind| kind == "data")
        && reason.is_some_and(|data| data["reason"] == "prebuild_claimed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_claim_starts_the_agent_again() {
        for (event, want) in [
            ("event: data\ndata: {\"WorkspaceID\":\"x\",\"reason\":\"prebuild_claimed\"}\n\n", true),
            ("data:{\"reason\":\"prebuild_claimed\"}\n\n", true),
            ("event: ping\n\n", false),
            ("event: error\ndata: {\"reason\":\"prebuild_claimed\"}\n\n", false),
            ("event: data\ndata: {\"reason\":\"other\"}\n\n", false),
            ("event: data\ndata: no json\n\n", false),
        ] {
            assert_eq!(is_claim(event), want, "{event:?}");
        }
    }
}
