//! A job's voice: log lines in batches, heartbeats, and the cancel notice that comes back with every answer.
//!
//! One task per job makes all its UpdateJob calls, so that two are never in flight at once (wire-protocol 5.5). It is
//! fed through a bounded queue: when the server is slow, Terraform's output waits and nothing is lost.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::Clock;
use coder_wire::messages::provisioner::LogLevel;
use coder_wire::messages::provisionerd as pb;
use pb::LogSource;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::cancel::{Cancel, Urgency};
use crate::session::{CallError, Link, Patience};

/// Lines wait at most this long for company.
const FLUSH_AFTER: Duration = Duration::from_millis(250);

/// A batch is sent when it has this many lines or bytes; messages may hold 4 MiB.
const BATCH_LINES: usize = 500;
const BATCH_BYTES: usize = 256 * 1024;

/// Longer texts become several lines.
const LINE_BYTES: usize = 16 * 1024;

const QUEUE_LINES: usize = 1024;

/// Text that any server can store: no NUL (wire-protocol 4.2).
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// Cuts a text into lines of bounded length.
fn rows(text: &str) -> Vec<&str> {
    let mut rows = Vec::new();
    for mut line in text.split('\n') {
        while line.len() > LINE_BYTES {
            let end = (0..=LINE_BYTES).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
            let (now, later) = line.split_at(end);
            rows.push(now);
            line = later;
        }
        rows.push(line);
    }
    rows
}

enum Command {
    Line(pb::Log),
    Flush(oneshot::Sender<()>),
    Update(Box<pb::UpdateJobRequest>, oneshot::Sender<Result<pb::UpdateJobResponse, CallError>>),
}

/// Where the parts of a job write to; clones share it.
#[derive(Clone)]
pub(crate) struct Reporter {
    commands: mpsc::Sender<Command>,
    clock: Arc<dyn Clock>,
}

/// How a job reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// A heartbeat is sent when nothing else was for this long.
    pub(crate) interval: Duration,
    pub(crate) patience: Patience,
}

impl Reporter {
    /// Starts the task. It ends when every reporter is gone.
    pub(crate) fn start(
        job_id: String,
        link: Link,
        cancel: Cancel,
        pace: Pace,
        clock: Arc<dyn Clock>,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (commands, receiver) = mpsc::channel(QUEUE_LINES);
        let sender = Sender {
            job_id,
            link,
            cancel,
            pace,
            pending: Vec::new(),
            pending_bytes: 0,
            flush_at: None,
            sent_at: Instant::now(),
            broken: false,
        };
        (Self { commands, clock }, tokio::spawn(sender.run(receiver)))
    }

    async fn line(&self, source: LogSource, level: LogLevel, stage: &str, text: &str) {
        let created_at = self.clock.now().as_millisecond();
        for row in rows(&clean(text)) {
            let log = pb::Log {
                source: source.into(),
                level: level.into(),
                created_at,
                stage: stage.to_owned(),
                output: row.to_owned(),
            };
            // The task ends only after its last reporter.
            let _ = self.commands.send(Command::Line(log)).await;
        }
    }

    /// A line that opens a stage (wire-protocol 5.13).
    pub(crate) async fn stage(&self, stage: &str) {
        self.line(LogSource::ProvisionerDaemon, LogLevel::Info, stage, "").await;
    }

    /// The log of a stage without lines below `lowest`.
    pub(crate) fn of_stage(&self, stage: &'static str, lowest: LogLevel) -> StageLog {
        StageLog { reporter: self.clone(), stage, lowest }
    }

    /// Sends everything that waits.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.commands.send(Command::Flush(done)).await.is_ok() {
            let _ = wait.await;
        }
    }

    /// An update that is more than log lines; its failure is the caller's.
    pub(crate) async fn update(
        &self,
        request: pb::UpdateJobRequest,
    ) -> Result<pb::UpdateJobResponse, CallError> {
        let (answer, wait) = oneshot::channel();
        let _ = self.commands.send(Command::Update(Box::new(request), answer)).await;
        wait.await.unwrap_or_else(|_| Err(CallError::Refused("the job's reports have ended".to_owned())))
    }
}

/// The log of one stage.
#[derive(Clone)]
pub(crate) struct StageLog {
    reporter: Reporter,
    stage: &'static str,
    lowest: LogLevel,
}

impl StageLog {
    pub(crate) async fn line(&self, level: LogLevel, text: &str) {
        if level >= self.lowest {
            self.reporter.line(LogSource::Provisioner, level, self.stage, text).await;
        }
    }
}

struct Sender {
    job_id: String,
    link: Link,
    cancel: Cancel,
    pace: Pace,
    pending: Vec<pb::Log>,
    pending_bytes: usize,
    flush_at: Option<Instant>,
    sent_at: Instant,
    /// An update failed for good: the job is being ended, and what it still says is dropped.
    broken: bool,
}

impl Sender {
    async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        loop {
            let heartbeat_at = self.sent_at + self.pace.interval;
            let flush_at = self.flush_at;
            tokio::select! {
                biased;
                () = sleep_until(flush_at) => self.flush().await,
                () = tokio::time::sleep_until(heartbeat_at), if !self.broken => self.flush().await,
                command = commands.recv() => match command {
                    None => break,
                    Some(Command::Line(log)) => self.line(log).await,
                    Some(Command::Flush(done)) => {
                        self.flush_pending().await;
                        let _ = done.send(());
                    }
                    Some(Command::Update(request, answer)) => {
                        self.flush_pending().await;
                        let result = self.send(*request).await;
                        let _ = answer.send(result);
                    }
                },
            }
        }
        self.flush_pending().await;
    }

    async fn line(&mut self, log: pb::Log) {
        if self.broken {
            return;
        }
        self.pending_bytes += log.encoded_len();
        self.pending.push(log);
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH_AFTER);
        if self.pending.len() >= BATCH_LINES || self.pending_bytes >= BATCH_BYTES {
            self.flush().await;
        }
    }

    async fn flush_pending(&mut self) {
        if !self.pending.is_empty() {
            self.flush().await;
        }
    }

    /// Sends the waiting lines; without any it is a heartbeat.
    async fn flush(&mut self) {
        self.flush_at = None;
        self.pending_bytes = 0;
        if self.broken {
            self.pending.clear();
            return;
        }
        let logs = std::mem::take(&mut self.pending);
        let request = pb::UpdateJobRequest { logs, ..pb::UpdateJobRequest::default() };
        if let Err(error) = self.send(request).await {
            self.broken = true;
            tracing::warn!(job_id = %self.job_id, %error, "an update of the job failed; the job is ended");
            self.cancel.fail(format!("send periodic update: {error}"));
        }
    }

    async fn send(&mut self, mut request: pb::UpdateJobRequest) -> Result<pb::UpdateJobResponse, CallError> {
        request.job_id = self.job_id.clone();
        let result = self.link.update_job(self.pace.patience, &request).await;
        self.sent_at = Instant::now();
        if let Ok(response) = &result
            && response.canceled
        {
            // Official daemons look only at answers to heartbeats, and miss it while a job logs steadily.
            self.cancel.request(Urgency::Graceful);
        }
        result
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_become_bounded_lines_without_nul() {
        assert_eq!(clean("a\0b"), "ab");
        assert_eq!(rows("one\n\ntwo"), ["one", "", "two"]);
        let long = "ä".repeat(LINE_BYTES);
        let rows = rows(&long);
        assert!(rows.iter().all(|row| row.len() <= LINE_BYTES));
        assert_eq!(rows.concat(), long);
    }
}
