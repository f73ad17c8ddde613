//! Follows a job: waits in the queue, prints its log in blocks by stage with their durations, and tells how it ended.

use std::time::Duration;

use coder_api::Timestamp;
use coder_api::client::{Client, JobLogTarget};
use coder_api::daemons::MatchedProvisioners;
use coder_api::jobs::{ProvisionerJob, ProvisionerJobLog, Status};

use crate::building::Building;
use crate::duration;
use crate::output::{Look, Printer, tame};
use crate::waiting::Waiting;

/// The stage behind all others, whatever came of them (wire-protocol 5.13).
const LAST_STAGE: &str = "Cleaning Up";

async fn job(client: &Client, of: JobLogTarget) -> anyhow::Result<ProvisionerJob> {
    Ok(match of {
        JobLogTarget::Version(id) => client.version(id).await?.job,
        JobLogTarget::DryRun(version, job) => client.dry_run(version, job).await?,
        JobLogTarget::Build(id) => client.build(id).await?.job,
    })
}

/// Whether a job in this status is over.
pub(crate) const fn has_ended(status: Status) -> bool {
    matches!(status, Status::Succeeded | Status::Failed | Status::Canceled)
}

/// Follows until the job has ended and returns it, whatever its end.
pub(crate) async fn follow(
    client: &Client,
    printer: &Printer,
    of: JobLogTarget,
) -> anyhow::Result<ProvisionerJob> {
    let mut blocks = Blocks::new(*printer);
    let mut after = 0;
    loop {
        let mut log = client.follow_job_logs(of, after);
        let waiting = queue(client, printer, of);
        tokio::pin!(waiting);
        let mut is_queued = true;
        loop {
            tokio::select! {
                biased;
                line = log.next() => match line? {
                    Some(line) => blocks.line(&line),
                    None => break,
                },
                // Official servers never close the log of a job that was canceled while it waited.
                ended = &mut waiting, if is_queued => {
                    is_queued = false;
                    if ended? {
                        break;
                    }
                }
            }
        }
        let job = job(client, of).await?;
        if has_ended(job.status) {
            blocks.finish(&job);
            return Ok(job);
        }
        // The server closed the log early: go on after the last line.
        after = log.position();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Watches a waiting job: true when it ended in the queue, false when a daemon took it.
async fn queue(client: &Client, printer: &Printer, of: JobLogTarget) -> anyhow::Result<bool> {
    let mut waiting = Waiting::new(*printer);
    loop {
        let job = job(client, of).await?;
        if job.status != Status::Pending {
            waiting.end();
            return Ok(has_ended(job.status));
        }
        waiting.look(client, &job).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Warns when nobody is there to take a waiting job (http-api 5.5).
pub(crate) fn warn_unmatched(printer: &Printer, job: &ProvisionerJob, matched: &MatchedProvisioners) {
    if job.status != Status::Pending {
        return;
    }
    let reason = match (matched.count, matched.available) {
        (0, _) => "no provisioner daemon accepts jobs with these tags",
        (_, 0) => "all provisioner daemons that accept jobs with these tags are offline",
        _ => return,
    };
    printer.warn(&format!(
        "{reason}; the job waits until one joins\n      tags: {}\n      start one with `coder provisioner start`, and see \
         `coder provisioner jobs list`",
        job.tags
    ));
}

/// The log as blocks; also used by `coder logs`.
pub(crate) struct Blocks {
    printer: Printer,
    stage: Option<(String, Timestamp)>,
    last: Option<Timestamp>,
    /// When the last stage began. Whether the one before it was good is known when the job has ended.
    cleaning: Option<Timestamp>,
    building: Building,
}

impl Blocks {
    /// No line yet.
    pub(crate) fn new(printer: Printer) -> Self {
        Self { printer, stage: None, last: None, cleaning: None, building: Building::default() }
    }

    /// Adds a line. A stage other than the one before closes its block.
    pub(crate) fn line(&mut self, line: &ProvisionerJobLog) {
        self.last = Some(line.created_at);
        if line.stage == LAST_STAGE && line.output.is_empty() && self.stage.is_some() {
            self.cleaning = self.cleaning.or(self.last);
            return;
        }
        self.clean(true);
        let is_new = self.stage.as_ref().is_none_or(|(stage, _)| *stage != line.stage);
        if !line.stage.is_empty() && is_new {
            self.close(line.created_at, true);
            self.open(&line.stage, line.created_at);
        }
        if !line.output.is_empty() {
            let counted = self.building.line(&line.output);
            self.printer.note(&self.text(line, counted));
        }
        // The next line goes over it.
        if let Some(status) = self.building.status() {
            self.printer.draw_line(Look::Code, &tame(&status));
        }
    }

    /// The line; one that ends the work on a resource says how many are done.
    fn text(&self, line: &ProvisionerJobLog, counted: Option<(usize, usize)>) -> String {
        let output = tame(&line.output);
        let text = match counted {
            Some((done, all)) => format!("    [{done}/{all}] {output}"),
            None => format!("    {output}"),
        };
        match line.log_level.as_str() {
            "error" => self.printer.paint(Look::Bad, &text),
            "warn" => self.printer.paint(Look::Warn, &text),
            _ => self.printer.paint(Look::Faint, &text),
        }
    }

    /// Closes the last block.
    pub(crate) fn finish(&mut self, job: &ProvisionerJob) {
        let end = job.completed_at.or(self.last);
        if let Some(end) = end {
            self.printer.draw("");
            let good = job.status == Status::Succeeded;
            let has_cleaned = self.cleaning.is_some();
            self.clean(good);
            self.close(end, good || has_cleaned);
        }
    }

    /// Goes over to the last stage, if it has begun.
    fn clean(&mut self, good: bool) {
        if let Some(begun) = self.cleaning.take() {
            self.close(begun, good);
            self.open(LAST_STAGE, begun);
        }
    }

    fn open(&mut self, stage: &str, at: Timestamp) {
        self.printer.note(&format!("{} {}", self.printer.paint(Look::Code, "==>"), tame(stage)));
        self.stage = Some((stage.to_owned(), at));
    }

    fn close(&mut self, end: Timestamp, good: bool) {
        if let Some((stage, start)) = self.stage.take() {
            let passed = Duration::try_from(end.duration_since(start)).unwrap_or_default();
            let mark = if good {
                self.printer.paint(Look::Good, "✔")
            } else {
                self.printer.paint(Look::Bad, "✘")
            };
            self.printer.note(&format!("=== {mark} {} [{}]", tame(&stage), duration::short(passed)));
        }
    }
}

/// Turns a job's end into success or an error.
pub(crate) fn outcome(job: &ProvisionerJob, what: &str) -> anyhow::Result<()> {
    match job.status {
        Status::Succeeded => Ok(()),
        Status::Canceled => anyhow::bail!("{what} was canceled"),
        _ if job.error.is_empty() => anyhow::bail!("{what} ended as {}", job.status),
        _ => anyhow::bail!("{what} failed: {}", job.error),
    }
}
