//! Reports of a running job: log lines in batches, heartbeats, and the cancel flag in every answer.
//!
//! One task per job makes all its UpdateJob and Logs calls, so two are never in flight at once (wire-protocol
//! 5.5). Lines are queued in bounded memory until the server acknowledges them. When the server is slow or
//! disconnected for long, Terraform blocks on its output pipe, and no line is lost.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::Clock;
use coder_wire::messages::provisioner::LogLevel;
use coder_wire::messages::provisionerd as pb;
use parking_lot::Mutex;
use pb::LogSource;
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::cancel::{Cancel, Urgency};
use crate::connection::{CallError, JobClient, LogReceipt, RetryPolicy};
use crate::output::log_rows::{split_rows, strip_nul};
use crate::output::mask::Secrets;

/// A line is sent after this time even if the batch is not full.
const FLUSH_AFTER: Duration = Duration::from_millis(250);

/// A batch is sent when it has this many lines or bytes; the message limit is 4 MiB.
const BATCH_LINES: usize = 500;
const BATCH_BYTES: usize = 256 * 1024;

/// Capacity of the channel to the task.
const QUEUE_LINES: usize = 64;

/// Buffered lines of a stage log; beyond this, as with Terraform's debug output, lines are no longer buffered.
const MAX_BUFFERED_LINES: usize = 256;

/// Bytes of queued lines. Terraform keeps writing while disconnected until this is reached.
const WAITING_BYTES: usize = 8 * 1024 * 1024;

enum ReporterCommand {
    Line(pb::Log),
    Flush(oneshot::Sender<()>),
    Update(Box<pb::UpdateJobRequest>, oneshot::Sender<Result<pb::UpdateJobResponse, CallError>>),
}

/// Sends log lines and updates of a job to its task; clones share it.
#[derive(Clone)]
pub(crate) struct Reporter {
    commands: mpsc::Sender<ReporterCommand>,
    clock: Arc<dyn Clock>,
    secrets: Secrets,
}

/// Timing of a job's updates.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpdateSchedule {
    /// A heartbeat is sent after this time without another update.
    pub(crate) interval: Duration,
    pub(crate) retry: RetryPolicy,
}

impl Reporter {
    /// Starts the task. It ends when every reporter is dropped.
    pub(crate) fn start(
        job: JobClient,
        cancel: Cancel,
        schedule: UpdateSchedule,
        clock: Arc<dyn Clock>,
        secrets: Secrets,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (commands, receiver) = mpsc::channel(QUEUE_LINES);
        let sender = UpdateSender {
            job,
            cancel,
            schedule,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            sending: None,
            flush_at: None,
            sent_at: Instant::now(),
            broken: false,
            log_full: false,
        };
        (Self { commands, clock, secrets }, tokio::spawn(sender.run(receiver)))
    }

    async fn line(&self, source: LogSource, level: LogLevel, stage: &str, text: &str) {
        let created_at = self.clock.now().as_millisecond();
        let masker = self.secrets.masker();
        for row in split_rows(&masker.mask(&strip_nul(text))) {
            let log = pb::Log {
                source: source.into(),
                level: level.into(),
                created_at,
                stage: stage.to_owned(),
                output: row.to_owned(),
            };
            // The task ends only after the last reporter is dropped.
            let _ = self.commands.send(ReporterCommand::Line(log)).await;
        }
    }

    /// The secrets to mask; more can be added.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Opens a stage (wire-protocol 5.13).
    pub(crate) async fn stage(&self, stage: &str) {
        self.line(LogSource::ProvisionerDaemon, LogLevel::Info, stage, "").await;
    }

    /// The log of a stage, without lines below `min_level`.
    pub(crate) fn stage_log(&self, stage: &'static str, min_level: LogLevel) -> StageLog {
        StageLog { reporter: self.clone(), stage, min_level: Some(min_level), buffered: None }
    }

    /// Sends all queued lines.
    pub(crate) async fn flush(&self) {
        let (done, wait) = oneshot::channel();
        if self.commands.send(ReporterCommand::Flush(done)).await.is_ok() {
            let _ = wait.await;
        }
    }

    /// Sends an update that is more than log lines; the caller handles its failure.
    pub(crate) async fn update(
        &self,
        request: pb::UpdateJobRequest,
    ) -> Result<pb::UpdateJobResponse, CallError> {
        let (answer, wait) = oneshot::channel();
        let _ = self.commands.send(ReporterCommand::Update(Box::new(request), answer)).await;
        wait.await.unwrap_or_else(|_| Err(CallError::Refused("the job's reporter has ended".to_owned())))
    }
}

/// Buffered lines.
type HeldLines = Vec<(LogLevel, String)>;

#[derive(Clone)]
pub(crate) struct StageLog {
    reporter: Reporter,
    stage: &'static str,
    /// `None` drops all lines.
    min_level: Option<LogLevel>,
    /// Lines that are logged only after [`StageLog::release`].
    buffered: Option<Arc<Mutex<HeldLines>>>,
}

impl StageLog {
    /// A log that drops everything, for commands whose output does not help users.
    pub(crate) fn silent(&self) -> Self {
        Self { min_level: None, ..self.clone() }
    }

    pub(crate) fn secrets(&self) -> &Secrets {
        self.reporter.secrets()
    }

    pub(crate) async fn line(&self, level: LogLevel, text: &str) {
        if self.min_level.is_none_or(|min_level| level < min_level) {
            return;
        }
        if let Some(buffered) = &self.buffered {
            let mut buffered = buffered.lock();
            if buffered.len() < MAX_BUFFERED_LINES {
                buffered.push((level, text.to_owned()));
                return;
            }
        }
        self.release().await;
        self.reporter.line(LogSource::Provisioner, level, self.stage, text).await;
    }

    /// The same log, but lines are buffered until [`StageLog::release`], and dropped without it.
    pub(crate) fn buffered(self) -> Self {
        Self { buffered: Some(Arc::default()), ..self }
    }

    /// Logs the buffered lines.
    pub(crate) async fn release(&self) {
        let Some(buffered) = &self.buffered else { return };
        let lines = std::mem::take(&mut *buffered.lock());
        for (level, text) in lines {
            self.reporter.line(LogSource::Provisioner, level, self.stage, &text).await;
        }
    }
}

struct UpdateSender {
    job: JobClient,
    cancel: Cancel,
    schedule: UpdateSchedule,
    /// Lines that the server has not acknowledged, oldest first, including those of a batch in flight.
    waiting: VecDeque<pb::Log>,
    waiting_bytes: usize,
    /// The batch or heartbeat in flight.
    sending: Option<SendFuture>,
    flush_at: Option<Instant>,
    sent_at: Instant,
    /// An update failed permanently: the job is being ended, and further lines are dropped.
    broken: bool,
    /// The server stores no further lines.
    log_full: bool,
}

type SendFuture = Pin<Box<dyn Future<Output = Result<LogReceipt, CallError>> + Send>>;

impl UpdateSender {
    async fn run(mut self, mut commands: mpsc::Receiver<ReporterCommand>) {
        // When the connection is cut right after the acquire, the daemon must already hold the job's token.
        self.job.request_token().await;
        loop {
            let heartbeat_at = self.sent_at + self.schedule.interval;
            let (idle, room) = (self.sending.is_none(), self.waiting_bytes < WAITING_BYTES);
            tokio::select! {
                biased;
                result = wait_for_send(&mut self.sending), if !idle => self.delivered(result),
                () = sleep_until(self.flush_at), if idle => self.send_batch(),
                () = tokio::time::sleep_until(heartbeat_at), if idle && !self.broken => self.send_batch(),
                command = commands.recv(), if room => match command {
                    None => break,
                    Some(ReporterCommand::Line(log)) => self.line(log),
                    Some(ReporterCommand::Flush(done)) => {
                        self.flush().await;
                        let _ = done.send(());
                    }
                    Some(ReporterCommand::Update(request, answer)) => {
                        self.flush().await;
                        let result = self.update(*request).await;
                        let _ = answer.send(result);
                    }
                },
            }
        }
        self.flush().await;
    }

    fn line(&mut self, log: pb::Log) {
        if self.broken || self.log_full {
            return;
        }
        self.waiting_bytes += log.encoded_len();
        self.waiting.push_back(log);
        self.flush_at.get_or_insert_with(|| Instant::now() + FLUSH_AFTER);
        if self.sending.is_none() && (self.waiting.len() >= BATCH_LINES || self.waiting_bytes >= BATCH_BYTES)
        {
            self.send_batch();
        }
    }

    /// Sends all queued lines; does nothing without any.
    async fn flush(&mut self) {
        loop {
            if self.sending.is_some() {
                let result = wait_for_send(&mut self.sending).await;
                self.delivered(result);
            } else if self.waiting.is_empty() {
                return;
            } else {
                self.send_batch();
            }
        }
    }

    /// Sends the oldest lines; without any this is a heartbeat.
    fn send_batch(&mut self) {
        self.flush_at = None;
        if self.broken {
            self.drop_lines();
            return;
        }
        let mut bytes = 0;
        let fits = |log: &&pb::Log| {
            bytes += log.encoded_len();
            bytes <= BATCH_BYTES
        };
        // A single line is far smaller than a batch, so each batch makes progress.
        let batch: Vec<pb::Log> = self.waiting.iter().take(BATCH_LINES).take_while(fits).cloned().collect();
        let (job, retry) = (self.job.clone(), self.schedule.retry);
        self.sending = Some(Box::pin(async move { job.deliver(retry, &batch).await }));
    }

    fn delivered(&mut self, result: Result<LogReceipt, CallError>) {
        self.sent_at = Instant::now();
        match result {
            Ok(delivered) => {
                for log in self.waiting.drain(..delivered.lines.min(self.waiting.len())) {
                    self.waiting_bytes -= log.encoded_len();
                }
                self.apply_cancel(delivered.canceled);
                if delivered.overflowed {
                    self.log_full = true;
                    self.drop_lines();
                }
            }
            Err(CallError::JobEnded(_)) => {
                self.broken = true;
                self.drop_lines();
            }
            Err(error) => {
                self.broken = true;
                self.drop_lines();
                tracing::warn!(job_id = self.job.job_id(), %error, "an update of the job failed; the job is ended");
                self.cancel.fail(format!("send periodic update: {error}"));
            }
        }
        if !self.waiting.is_empty() {
            // Lines that arrived while the batch was in flight have waited long enough.
            self.flush_at = Some(Instant::now());
        }
    }

    fn drop_lines(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
        self.flush_at = None;
    }

    async fn update(
        &mut self,
        mut request: pb::UpdateJobRequest,
    ) -> Result<pb::UpdateJobResponse, CallError> {
        request.job_id = self.job.job_id().to_owned();
        let result = self.job.update_job(self.schedule.retry, &request).await;
        self.sent_at = Instant::now();
        if let Ok(response) = &result {
            self.apply_cancel(response.canceled);
        }
        result
    }

    /// Official daemons check only answers to heartbeats, and miss a cancel while a job logs steadily.
    fn apply_cancel(&self, canceled: bool) {
        if canceled {
            self.cancel.request(Urgency::Graceful);
        }
    }
}

/// The result of the call in flight, once.
async fn wait_for_send(sending: &mut Option<SendFuture>) -> Result<LogReceipt, CallError> {
    match sending {
        Some(running) => {
            let result = running.await;
            *sending = None;
            result
        }
        None => std::future::pending().await,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
