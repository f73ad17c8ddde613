//! Following the log of a job or an agent over a WebSocket, across lost connections.

use std::collections::VecDeque;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_domain::ids::{AgentId, BuildId, JobId, TemplateVersionId};
use futures_util::StreamExt as _;
use http::Method;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig};
use tokio_tungstenite::{WebSocketStream, tungstenite};

use super::error::{Call, Error};
use super::{BoxedByteStream, Client, Timeouts};
use crate::jobs::ProvisionerJobLog;
use crate::paths;
use crate::resources::WorkspaceAgentLog;

/// Longest message that is accepted. Official servers send at most 32 KiB (http-api 10.1).
const MESSAGE_LIMIT: usize = 1 << 20;
/// Delays between attempts to connect again.
const FIRST_RECONNECT: Duration = Duration::from_millis(50);
const LAST_RECONNECT: Duration = Duration::from_secs(10);
/// How long the answer to the server's close may take.
const CLOSE_ANSWER: Duration = Duration::from_secs(1);

/// The job whose log to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobLogTarget {
    /// The import of a version.
    Version(TemplateVersionId),
    DryRun(TemplateVersionId, JobId),
    /// A workspace build.
    Build(BuildId),
}

impl JobLogTarget {
    fn path(self) -> String {
        match self {
            Self::Version(version) => paths::version_logs(version),
            Self::DryRun(version, job) => paths::dry_run_logs(version, job),
            Self::Build(build) => paths::build_logs(build),
        }
    }
}

/// A line of a log that can be followed.
pub trait LogLine: Sized + Send + Unpin {
    /// Its number; it grows over one log.
    fn id(&self) -> i64;
    /// The lines of one message.
    ///
    /// # Errors
    /// The message is not JSON of this kind.
    fn read(message: &str) -> Result<Vec<Self>, serde_json::Error>;
}

impl LogLine for ProvisionerJobLog {
    fn id(&self) -> i64 {
        self.id
    }

    fn read(message: &str) -> Result<Vec<Self>, serde_json::Error> {
        serde_json::from_str(message).map(|line| vec![line])
    }
}

impl LogLine for WorkspaceAgentLog {
    fn id(&self) -> i64 {
        self.id
    }

    fn read(message: &str) -> Result<Vec<Self>, serde_json::Error> {
        serde_json::from_str(message)
    }
}

/// The log of a job. It ends when the job has ended and every line was delivered.
pub type JobLogs = FollowedLog<ProvisionerJobLog>;
/// The log of an agent. It ends when the agent's build is no longer the latest of its workspace.
pub type AgentLogs = FollowedLog<WorkspaceAgentLog>;

/// A log that is being followed.
pub struct FollowedLog<L> {
    client: Client,
    path: String,
    after: i64,
    /// Lines of the last message.
    ready: VecDeque<L>,
    socket: Option<WebSocketStream<BoxedByteStream>>,
    backoff: Backoff,
    /// Since when no connection has worked.
    lost: Option<Instant>,
    ended: bool,
}

impl Client {
    /// Follows a log from the line after `after` (0 for all). Connects at the first [`JobLogs::next`].
    #[must_use]
    pub fn follow_job_logs(&self, of: JobLogTarget, after: i64) -> JobLogs {
        self.follow(of.path(), after)
    }

    /// As [`Self::follow_job_logs`], for an agent.
    #[must_use]
    pub fn follow_agent_logs(&self, agent: AgentId, after: i64) -> AgentLogs {
        self.follow(paths::agent_logs(agent), after)
    }

    fn follow<L>(&self, path: String, after: i64) -> FollowedLog<L> {
        FollowedLog {
            client: self.clone(),
            path,
            after,
            ready: VecDeque::new(),
            socket: None,
            backoff: Backoff::new(FIRST_RECONNECT, LAST_RECONNECT).with_jitter(),
            lost: None,
            ended: false,
        }
    }

    /// The lines after `after` that exist now.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn job_logs(&self, of: JobLogTarget, after: i64) -> Result<Vec<ProvisionerJobLog>, Error> {
        let after = after.to_string();
        self.list(&of.path(), &[("after", after.as_str())]).await
    }

    /// The lines of an agent after `after` that exist now.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn agent_logs(&self, agent: AgentId, after: i64) -> Result<Vec<WorkspaceAgentLog>, Error> {
        let after = after.to_string();
        self.list(&paths::agent_logs(agent), &[("after", after.as_str())]).await
    }
}

/// Whether an error means a lost connection, and not a protocol violation.
const fn is_loss(error: &tungstenite::Error) -> bool {
    use tungstenite::error::ProtocolError::ResetWithoutClosingHandshake;
    matches!(
        error,
        tungstenite::Error::Io(_)
            | tungstenite::Error::ConnectionClosed
            | tungstenite::Error::AlreadyClosed
            | tungstenite::Error::Protocol(ResetWithoutClosingHandshake)
    )
}

enum Step {
    End,
    Skip,
    /// The connection was lost for this reason.
    Lost(Error),
}

impl<L: LogLine> FollowedLog<L> {
    /// The next line, or `None` after the last one. May be dropped and called again without losing a line.
    ///
    /// # Errors
    /// The server refuses, violates the protocol, or cannot be reached again in time. The log ends with an error.
    pub async fn next(&mut self) -> Result<Option<L>, Error> {
        loop {
            // A server may repeat lines after a reconnect; ids grow over one log.
            while let Some(line) = self.ready.pop_front() {
                if line.id() > self.after {
                    self.after = line.id();
                    self.lost = None;
                    self.backoff.reset();
                    return Ok(Some(line));
                }
            }
            if self.ended {
                return Ok(None);
            }
            let step = self.step().await.inspect_err(|_| self.ended = true)?;
            match step {
                Step::End => self.ended = true,
                Step::Skip => {}
                Step::Lost(error) => self.wait(error).await.inspect_err(|_| self.ended = true)?,
            }
        }
    }

    /// The id of the last line delivered.
    #[must_use]
    pub const fn position(&self) -> i64 {
        self.after
    }

    /// Reads everything that is left.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn collect(mut self) -> Result<Vec<L>, Error> {
        let mut lines = Vec::new();
        while let Some(line) = self.next().await? {
            lines.push(line);
        }
        Ok(lines)
    }

    async fn step(&mut self) -> Result<Step, Error> {
        let call = self.call();
        let silence = self.timeouts().log_silence;
        let Some(socket) = &mut self.socket else {
            return self.connect().await;
        };
        let Ok(message) = timeout(silence, socket.next()).await else {
            self.socket = None;
            return Ok(Step::Lost(call.timeout(silence, "following the log")));
        };
        let lost = match message {
            Some(Ok(Message::Text(text))) => {
                let lines = L::read(text.as_str()).map_err(|source| Error::Decode { at: call, source })?;
                self.ready.extend(lines);
                return Ok(Step::Skip);
            }
            // Answered by the library at the next read.
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => return Ok(Step::Skip),
            Some(Ok(Message::Binary(_))) => return Err(call.protocol("a log line came as a binary message")),
            Some(Ok(Message::Close(Some(frame)))) if frame.code == CloseCode::Normal => {
                // Answers the close. A disconnected server does not need the answer.
                let _ = timeout(CLOSE_ANSWER, socket.close(None)).await;
                return Ok(Step::End);
            }
            Some(Ok(Message::Close(frame))) => {
                let code = frame.map_or(1005, |frame| frame.code.into());
                call.protocol(format!("the server closed the log with code {code}"))
            }
            Some(Err(error)) if is_loss(&error) => call.transport(error),
            Some(Err(error)) => {
                return Err(call.protocol(format!("the log is not a WebSocket stream: {error}")));
            }
            None => call.protocol("the connection ended"),
        };
        self.socket = None;
        Ok(Step::Lost(lost))
    }

    async fn connect(&mut self) -> Result<Step, Error> {
        let after = self.after.to_string();
        let query: &[(&str, &str)] =
            if self.after > 0 { &[("after", &after), ("follow", "")] } else { &[("follow", "")] };
        match self.client.open(&self.path, query, self.client.cookie()?).await {
            Ok(upgraded) => {
                let limits = WebSocketConfig::default()
                    .max_message_size(Some(MESSAGE_LIMIT))
                    .max_frame_size(Some(MESSAGE_LIMIT));
                let socket = WebSocketStream::from_raw_socket(upgraded.stream, Role::Client, Some(limits));
                self.socket = Some(socket.await);
                Ok(Step::Skip)
            }
            Err(error) if error.is_retryable() => Ok(Step::Lost(error)),
            Err(error) => Err(error),
        }
    }

    /// Waits before the next attempt, unless no connection has worked for too long.
    async fn wait(&mut self, error: Error) -> Result<(), Error> {
        let since = *self.lost.get_or_insert_with(Instant::now);
        if since.elapsed() >= self.timeouts().log_reconnect {
            return Err(error);
        }
        tracing::debug!(%error, after = self.after, "lost the log, connecting again");
        sleep(self.backoff.next_delay()).await;
        Ok(())
    }

    fn timeouts(&self) -> Timeouts {
        self.client.server.timeouts
    }

    fn call(&self) -> Call {
        Call::new(Method::GET, &self.client.url(&self.path, &[]))
    }
}

impl<L> std::fmt::Debug for FollowedLog<L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FollowedLog")
            .field("path", &self.path)
            .field("after", &self.after)
            .finish_non_exhaustive()
    }
}
