//! Runs Terraform, reads its output, and ensures that no child process outlives it.

pub(crate) mod environment;
pub(crate) mod events;
pub(crate) mod start_failure;
pub(crate) mod timings;
mod transient;
pub(crate) mod variables;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use coder_domain::clock::Clock;
use coder_wire::messages::provisioner::{LogLevel, Timing};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{ChildStderr, ChildStdout, Command};
use tokio_util::sync::CancellationToken;

use self::environment::{EnvVars, Environment};
use self::events::Event;
use self::timings::{TerraformStep, Timings};
use crate::cancel::{Cancel, Urgency};
use crate::isolation;
use crate::isolation::{Process, Sandbox};
use crate::job::reporter::StageLog;
use crate::output::line_masker::LineMasker;
use crate::output::line_splitter::{LineSplitter, Piece};

/// Limit of output that is kept in memory (plans, states, graphs).
const CAPTURE_LIMIT_BYTES: usize = 128 * 1024 * 1024;

const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How much of Terraform's messages goes into a job's error.
const ERROR_LINES: usize = 5;
const ERROR_BYTES: usize = 4 * 1024;

/// After the process has ended, a pipe that is silent for this long is closed: a child process may hold it
/// open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error("the job was canceled")]
    Canceled,
    #[error("cannot start {program}: {cause}")]
    Start { program: String, cause: String },
    #[error("cannot read its output: {0}")]
    Read(std::io::Error),
    #[error("its output is longer than {CAPTURE_LIMIT_BYTES} bytes")]
    TooLong,
    #[error("{status}{summary}")]
    Exit { status: String, summary: String },
}

/// What a command has reported so far, besides its log lines.
pub(crate) struct EventObserver<'a> {
    clock: &'a dyn Clock,
    timings: Timings,
    errors: Vec<String>,
    /// One of the errors was a transient one of a remote.
    transient: bool,
    pub(crate) planned: PlannedChanges,
}

/// What the events of a plan say about its result.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlannedChanges {
    /// A resource that is not of a `coder_` type is replaced.
    pub(crate) replaces: bool,
    /// A resource with a cost, or an AI task, changes.
    pub(crate) counted_types: bool,
}

impl<'a> EventObserver<'a> {
    pub(crate) fn start(step: TerraformStep, clock: &'a dyn Clock) -> Self {
        let timings = Timings::start(step, clock.now());
        Self { clock, timings, errors: Vec::new(), transient: false, planned: PlannedChanges::default() }
    }

    /// The timings of the step, which ends now.
    pub(crate) fn finish(self, succeeded: bool) -> Vec<Timing> {
        self.timings.finish(succeeded, self.clock.now())
    }

    /// Whether the failure is transient; clears the errors, because the command is run again.
    pub(crate) fn take_transient(&mut self) -> bool {
        if self.transient {
            self.errors.clear();
        }
        std::mem::take(&mut self.transient)
    }

    pub(crate) fn observe(&mut self, event: &Event) {
        self.timings.observe(event, self.clock.now());
        self.transient |= event.error_text().is_some_and(|text| transient::is_transient(&text));
        if let Some(error) = event.error_summary() {
            self.error(error);
        }
        if let Some(change) = event.change.as_ref().filter(|_| event.kind == "planned_change") {
            let kind = change.resource.resource_type.as_str();
            self.planned.replaces |= change.action == "replace" && !kind.starts_with("coder_");
            self.planned.counted_types |= matches!(kind, "coder_metadata" | "coder_ai_task");
        }
    }

    fn error(&mut self, text: String) {
        if self.errors.len() < ERROR_LINES && !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }
}

/// What all commands of a job have in common.
#[derive(Clone, Copy)]
pub(crate) struct Runner<'a> {
    pub(crate) program: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) environment: &'a Environment,
    pub(crate) cancel: &'a Cancel,
    /// An interrupted Terraform is killed after this time (terraform 1.2).
    pub(crate) exit_timeout: Duration,
    /// The sandbox of commands that run code of a template; `None` for all others.
    pub(crate) sandbox: Option<Sandbox<'a>>,
}

impl Runner<'_> {
    /// Runs a command whose output is a log.
    pub(crate) async fn stream(
        &self,
        arguments: &[OsString],
        variables: &EnvVars,
        log: &StageLog,
        observer: &mut EventObserver<'_>,
    ) -> Result<(), CommandError> {
        let mut child = self.start(arguments, variables)?;
        let ended = CancellationToken::new();
        let (stdout, stderr) = pipes(&mut child, &ended);
        let mut plain_errors = Vec::new();
        let reading = async {
            tokio::try_join!(read_events(stdout, log, observer), read_errors(stderr, log, &mut plain_errors))
                .map(|_| ())
        };
        let status = self.finish(&mut child, &ended, reading).await?;
        // Plain text comes from programs that fail before they print diagnostics.
        if observer.errors.is_empty() {
            observer.transient |= plain_errors.iter().any(|line| transient::is_transient(line));
            plain_errors.into_iter().for_each(|line| observer.error(line));
        }
        self.check(status, &observer.errors)
    }

    /// Runs a command whose standard output is its result.
    pub(crate) async fn capture(
        &self,
        arguments: &[OsString],
        variables: &EnvVars,
        log: &StageLog,
    ) -> Result<Vec<u8>, CommandError> {
        let mut child = self.start(arguments, variables)?;
        let ended = CancellationToken::new();
        let (stdout, stderr) = pipes(&mut child, &ended);
        let mut errors = Vec::new();
        let mut output = Vec::new();
        let reading = async {
            tokio::try_join!(read_all(stdout, &mut output), read_errors(stderr, log, &mut errors)).map(|_| ())
        };
        let status = self.finish(&mut child, &ended, reading).await?;
        self.check(status, &errors)?;
        Ok(output)
    }

    fn start(&self, arguments: &[OsString], variables: &EnvVars) -> Result<Process, CommandError> {
        if self.cancel.is_requested() {
            return Err(CommandError::Canceled);
        }
        let mut command = Command::new(self.program);
        self.environment.apply_basic(&mut command);
        if let Some(sandbox) = self.sandbox {
            command.env("HOME", sandbox.config.home.path_for_job(sandbox.job));
        }
        command
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        isolation::spawn(&mut command, self.sandbox).map_err(|error| CommandError::Start {
            program: self.program.display().to_string(),
            cause: start_failure::from_spawn_error(self.program, &error).text,
        })
    }

    fn check(&self, status: ExitStatus, errors: &[String]) -> Result<(), CommandError> {
        use std::os::unix::process::ExitStatusExt as _;
        if status.success() {
            return Ok(());
        }
        let mut shown = match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        };
        // The signals of a canceled job are ours.
        if !self.cancel.is_requested()
            && let Some(cause) = start_failure::from_signal(status)
        {
            shown = format!("{shown} ({})", cause.text);
        }
        Err(CommandError::Exit { status: shown, summary: summarize_errors(errors) })
    }

    /// Reads until the process ends. A cancel interrupts the process once, and kills it after the exit timeout.
    async fn finish(
        &self,
        child: &mut Process,
        ended: &CancellationToken,
        reading: impl Future<Output = Result<(), CommandError>>,
    ) -> Result<ExitStatus, CommandError> {
        let signals = child.signals();
        let ending = async {
            self.cancel.reached(Urgency::Graceful).await;
            // Only Terraform itself: it stops providers and provisioners in its own order.
            signals.interrupt();
            tokio::select! {
                () = self.cancel.reached(Urgency::Forced) => {}
                () = tokio::time::sleep(self.exit_timeout) => {}
            }
            signals.kill();
            std::future::pending::<Infallible>().await
        };
        let mut reading = std::pin::pin!(reading);
        let mut read = None;
        let waiting = async {
            loop {
                tokio::select! {
                    status = child.wait() => return status,
                    result = &mut reading, if read.is_none() => {
                        if result.is_err() {
                            // Nobody reads the pipe any more, so Terraform would block for ever.
                            signals.kill();
                        }
                        read = Some(result);
                    }
                }
            }
        };
        let status = tokio::select! {
            status = waiting => status.map_err(CommandError::Read)?,
            never = ending => match never {},
        };
        // Child processes must not outlive Terraform or hold its pipes open.
        signals.kill();
        ended.cancel();
        match read {
            Some(result) => result?,
            None => reading.await?,
        }
        Ok(status)
    }
}

/// A summary of the errors, to follow an exit status.
fn summarize_errors(errors: &[String]) -> String {
    let mut summary = String::new();
    // The general message adds nothing to specific ones.
    let is_informative =
        |error: &&String| errors.len() == 1 || !error.contains(" encountered problems during initiali");
    for error in errors.iter().filter(is_informative) {
        if summary.is_empty() {
            summary.push_str(": ");
        } else {
            summary.truncate(summary.trim_end_matches('.').len());
            summary.push_str("; ");
        }
        summary.push_str(error);
    }
    if summary.len() > ERROR_BYTES {
        summary.truncate(summary.floor_char_boundary(ERROR_BYTES));
        summary.push('…');
    }
    summary
}

/// A pipe that is closed when it stays silent after its process has ended.
struct Pipe<R> {
    from: R,
    ended: CancellationToken,
}

impl<R: AsyncRead + Unpin> Pipe<R> {
    async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize, CommandError> {
        let silent = async {
            self.ended.cancelled().await;
            tokio::time::sleep(DRAIN_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            read = self.from.read_buf(buffer) => read.map_err(CommandError::Read),
            () = silent => Ok(0),
        }
    }
}

fn pipes(child: &mut Process, ended: &CancellationToken) -> (Pipe<ChildStdout>, Pipe<ChildStderr>) {
    let (stdout, stderr) = child.pipes();
    (Pipe { from: stdout, ended: ended.clone() }, Pipe { from: stderr, ended: ended.clone() })
}

/// The lines of a pipe.
struct PieceReader<R> {
    pipe: Pipe<R>,
    lines: Option<LineSplitter>,
    buffer: Vec<u8>,
    ready: VecDeque<Piece>,
}

impl<R: AsyncRead + Unpin> PieceReader<R> {
    fn new(pipe: Pipe<R>) -> Self {
        let buffer = Vec::with_capacity(READ_BUFFER_BYTES);
        Self { pipe, lines: Some(LineSplitter::default()), buffer, ready: VecDeque::new() }
    }

    async fn next(&mut self) -> Result<Option<Piece>, CommandError> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            let Some(lines) = &mut self.lines else { return Ok(None) };
            if self.pipe.read(&mut self.buffer).await? > 0 {
                self.ready.extend(lines.push(&self.buffer));
                self.buffer.clear();
            } else {
                self.ready.extend(self.lines.take().and_then(LineSplitter::finish));
            }
        }
    }
}

async fn read_events(
    from: Pipe<ChildStdout>,
    log: &StageLog,
    observer: &mut EventObserver<'_>,
) -> Result<(), CommandError> {
    let mut pieces = PieceReader::new(from);
    let mut stitcher = LineMasker::new(log.secrets().clone());
    while let Some(piece) = pieces.next().await? {
        let text = piece.text();
        let lines = match Event::parse(&text) {
            Some(event) => {
                observer.observe(&event);
                event.lines()
            }
            None if text.trim().is_empty() => Vec::new(),
            None => vec![(LogLevel::Info, text)],
        };
        for (level, line) in lines {
            log_lines(stitcher.push(level, &line), log).await;
        }
    }
    log_lines(stitcher.finish(), log).await;
    Ok(())
}

async fn read_errors(
    from: Pipe<ChildStderr>,
    log: &StageLog,
    plain: &mut Vec<String>,
) -> Result<(), CommandError> {
    let mut pieces = PieceReader::new(from);
    let mut stitcher = LineMasker::new(log.secrets().clone());
    while let Some(piece) = pieces.next().await? {
        let text = piece.text();
        if let Some(event) = Event::parse(&text) {
            if let Some((level, line)) = event.stderr_line() {
                log_lines(stitcher.push(level, &line), log).await;
            }
        } else if !text.trim().is_empty() {
            // Strips the frame that Terraform draws around messages.
            let words = text.trim_matches(|c: char| c.is_whitespace() || matches!(c, '╷' | '│' | '╵'));
            if plain.len() < ERROR_LINES && !words.is_empty() {
                plain.push(words.to_owned());
            }
            log_lines(stitcher.push(LogLevel::Error, &text), log).await;
        }
    }
    log_lines(stitcher.finish(), log).await;
    Ok(())
}

async fn log_lines(lines: Vec<(LogLevel, String)>, log: &StageLog) {
    for (level, line) in lines {
        log.line(level, &line).await;
    }
}

async fn read_all(mut from: Pipe<ChildStdout>, output: &mut Vec<u8>) -> Result<(), CommandError> {
    while from.read(output).await? > 0 {
        if output.len() > CAPTURE_LIMIT_BYTES {
            return Err(CommandError::TooLong);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_joined_without_redundant_ones() {
        let errors =
            |list: &[&str]| summarize_errors(&list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let general = "Terraform encountered problems during initialisation, including problems";
        assert_eq!(errors(&[]), "");
        assert_eq!(errors(&["One.", general, "Two."]), ": One; Two.");
        assert_eq!(errors(&[general]), format!(": {general}"));
    }
}
