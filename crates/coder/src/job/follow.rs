//! Follows a job: waits in the queue, prints its log by stages with their durations, and returns its result.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use coder_api::Timestamp;
use coder_api::client::{Client, JobLogTarget};
use coder_api::daemons::MatchedProvisioners;
use coder_api::jobs::{ProvisionerJob, ProvisionerJobLog, Status};
use tokio::time::MissedTickBehavior;

use crate::duration;
use crate::job::queue::QueueStatus;
use crate::job::resource_progress::ResourceProgress;
use crate::terminal::output::{Printer, Style, one_line};
use crate::terminal::spinner;

/// The last stage, which follows the others in any case (wire-protocol 5.13).
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

/// Follows until the job has ended and returns it, whatever its end. `matched` are the daemons that accepted it when it was
/// created, for servers that cannot explain why it waits.
pub(crate) async fn follow(
    client: &Client,
    printer: &Printer,
    of: JobLogTarget,
    matched: Option<&MatchedProvisioners>,
) -> anyhow::Result<ProvisionerJob> {
    let mut stages = StageLog::new(*printer);
    let mut ticks = tokio::time::interval(spinner::REDRAW_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut after = 0;
    loop {
        let mut log = client.follow_job_logs(of, after);
        let waiting = queue(client, printer, of, matched);
        tokio::pin!(waiting);
        let mut is_queued = true;
        loop {
            tokio::select! {
                biased;
                line = log.next() => match line? {
                    Some(line) => stages.line(&line),
                    None => break,
                },
                // Official servers never close the log of a job that was canceled while it waited.
                ended = &mut waiting, if is_queued => {
                    is_queued = false;
                    if ended? {
                        break;
                    }
                }
                _ = ticks.tick(), if printer.is_live() => stages.tick(),
            }
        }
        let job = job(client, of).await?;
        if has_ended(job.status) {
            stages.finish(&job);
            return Ok(job);
        }
        // The server closed the log early: continue after the last line.
        after = log.position();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Watches a waiting job. Returns true when it ended in the queue and false when a daemon acquired it.
async fn queue(
    client: &Client,
    printer: &Printer,
    of: JobLogTarget,
    matched: Option<&MatchedProvisioners>,
) -> anyhow::Result<bool> {
    let mut waiting = QueueStatus::new(*printer, matched);
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

/// Warns when no daemon can take a waiting job (http-api 5.5).
pub(crate) fn warn_unmatched(printer: &Printer, job: &ProvisionerJob, matched: &MatchedProvisioners) {
    if let Some(text) = unmatched(job, matched) {
        printer.warn(&text);
    }
}

fn unmatched(job: &ProvisionerJob, matched: &MatchedProvisioners) -> Option<String> {
    if job.status != Status::Pending {
        return None;
    }
    let reason = match (matched.count, matched.available) {
        (0, _) => "no provisioner daemon accepts jobs with these tags",
        (_, 0) => "all provisioner daemons that accept jobs with these tags are offline",
        _ => return None,
    };
    Some(format!(
        "{reason}; the job waits until one joins\n      tags: {}\n      start one with `coder provisioner start`, and see \
         `coder provisioner jobs list`",
        one_line(&job.tags.to_string())
    ))
}

/// Lines of a stage that are kept to be shown when it fails.
const KEPT_LINES: usize = 200;

/// The log by stages. On a terminal it is folded: one line for each stage and each completed resource, and a progress
/// line. In a pipe, or with `--verbose`, every line of Terraform is shown.
struct StageLog {
    printer: Printer,
    is_folded: bool,
    stage: Option<(String, Timestamp)>,
    /// When this program saw the stage begin.
    since: Instant,
    last: Option<Timestamp>,
    /// When the last stage began. Whether the one before it succeeded is known when the job has ended.
    cleaning: Option<Timestamp>,
    progress: ResourceProgress,
    /// Lines of the stage that were not shown.
    folded: VecDeque<String>,
}

impl StageLog {
    fn new(printer: Printer) -> Self {
        let is_folded = printer.is_live() && !printer.is_verbose();
        Self {
            printer,
            is_folded,
            stage: None,
            since: Instant::now(),
            last: None,
            cleaning: None,
            progress: ResourceProgress::default(),
            folded: VecDeque::new(),
        }
    }

    /// Adds a line. A stage other than the one before closes its block.
    fn line(&mut self, line: &ProvisionerJobLog) {
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
            let counted = self.progress.line(&line.output);
            self.show(line, counted);
        }
    }

    fn show(&mut self, line: &ProvisionerJobLog, counted: Option<(usize, usize)>) {
        let is_problem = matches!(line.log_level.as_str(), "error" | "warn");
        if line.log_level.as_str() == "error" {
            self.unfold();
        }
        if !self.is_folded || is_problem {
            self.printer.note(&self.text(line, counted));
        } else if let Some((done, all)) = counted {
            let output = one_line(&line.output);
            let mark = self.printer.paint(Style::Good, "✔");
            let text = match output.split_once(": ") {
                Some((address, words)) => {
                    let words = words.split(" [id=").next().unwrap_or_default();
                    format!(
                        "    {mark} {address} {}",
                        self.printer.paint(Style::Faint, &words.to_lowercase())
                    )
                }
                None => format!("    {mark} {output}"),
            };
            self.printer
                .note(&format!("{text} {}", self.printer.paint(Style::Faint, &format!("[{done}/{all}]"))));
        } else {
            if self.folded.len() == KEPT_LINES {
                self.folded.pop_front();
            }
            self.folded.push_back(self.text(line, None));
        }
    }

    /// Draws the progress line with its duration. The next line replaces it.
    fn tick(&self) {
        if !self.printer.is_live() {
            return;
        }
        let passed = spinner::passed(self.since.elapsed());
        let frame = spinner::frame(self.since.elapsed());
        if let Some(status) = self.progress.status() {
            self.printer.draw_line(Style::Code, &format!("{frame} {}{passed}", one_line(&status)));
        } else if let Some((stage, _)) = &self.stage {
            self.printer.draw_line(Style::Code, &format!("{frame} {}{passed}", one_line(stage)));
        }
    }

    /// The line. A line that completes a resource gets the number of completed ones.
    fn text(&self, line: &ProvisionerJobLog, counted: Option<(usize, usize)>) -> String {
        let output = one_line(&line.output);
        let text = match counted {
            Some((done, all)) => format!("    [{done}/{all}] {output}"),
            None => format!("    {output}"),
        };
        match line.log_level.as_str() {
            "error" => self.printer.paint(Style::Bad, &text),
            "warn" => self.printer.paint(Style::Warn, &text),
            _ => self.printer.paint(Style::Faint, &text),
        }
    }

    /// Closes the last block.
    fn finish(&mut self, job: &ProvisionerJob) {
        let end = job.completed_at.or(self.last);
        if let Some(end) = end {
            self.printer.draw("");
            let succeeded = job.status == Status::Succeeded;
            let has_cleaned = self.cleaning.is_some();
            self.clean(succeeded);
            self.close(end, succeeded || has_cleaned);
        }
    }

    /// Shows the lines that lead to a problem.
    fn unfold(&mut self) {
        self.folded.drain(..).for_each(|line| self.printer.note(&line));
    }

    /// Continues with the last stage, if it has begun.
    fn clean(&mut self, succeeded: bool) {
        if let Some(begun) = self.cleaning.take() {
            self.close(begun, succeeded);
            self.open(LAST_STAGE, begun);
        }
    }

    fn open(&mut self, stage: &str, at: Timestamp) {
        if !self.is_folded {
            self.printer.note(&format!("{} {}", self.printer.paint(Style::Code, "==>"), one_line(stage)));
        }
        self.stage = Some((stage.to_owned(), at));
        self.since = Instant::now();
        self.folded.clear();
    }

    fn close(&mut self, end: Timestamp, succeeded: bool) {
        if let Some((stage, start)) = self.stage.take() {
            let passed = Duration::try_from(end.duration_since(start)).unwrap_or_default();
            let mark = if succeeded {
                self.printer.paint(Style::Good, "✔")
            } else {
                self.printer.paint(Style::Bad, "✘")
            };
            if !succeeded {
                self.unfold();
            }
            self.printer.note(&format!("=== {mark} {} [{}]", one_line(&stage), duration::short(passed)));
        }
    }
}

/// Converts the end of a job into success or an error.
pub(crate) fn outcome(job: &ProvisionerJob, what: &str) -> anyhow::Result<()> {
    match job.status {
        Status::Succeeded => Ok(()),
        Status::Canceled => anyhow::bail!("{what} was canceled"),
        _ if job.error.is_empty() => anyhow::bail!("{what} ended as {}", job.status),
        _ => anyhow::bail!("{what} failed: {}", cause(&job.error)),
    }
}

/// Phases that daemons put before the cause of a failed import, one inside of the other (wire-protocol 5.6).
const PHASES: [&str; 3] = [
    "template import provision for start: ",
    "template import provision for stop: ",
    "plan during template import provision error: ",
];

/// The error of a job without the phases of its daemon: the log shows in which stage it failed.
pub(crate) fn cause(error: &str) -> &str {
    PHASES.iter().fold(error, |rest, phase| rest.strip_prefix(phase).unwrap_or(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_import_says_its_cause_only() {
        let whole = "template import provision for start: plan during template import provision error: terraform plan: x";
        assert_eq!(cause(whole), "terraform plan: x");
        assert_eq!(cause("terraform apply: y"), "terraform apply: y");
    }

    #[test]
    fn a_job_without_a_daemon_is_named_with_its_tags() {
        let job = |status: &str| -> ProvisionerJob {
            let id = "11111111-1111-4111-8111-111111111111";
            serde_json::from_value(serde_json::json!({
                "id": id, "created_at": "2025-01-01T00:00:00Z", "status": status, "file_id": id,
                "tags": { "a": "1", "owner": "", "scope": "organization" }, "organization_id": id, "initiator_id": id,
                "type": "template_version_import",
            }))
            .unwrap()
        };
        let matched =
            |count, available| MatchedProvisioners { count, available, ..MatchedProvisioners::default() };
        let text = unmatched(&job("pending"), &matched(0, 0)).unwrap();
        assert!(
            text.starts_with("no provisioner daemon accepts") && text.contains("tags: a=1 owner= "),
            "{text}"
        );
        assert!(unmatched(&job("pending"), &matched(2, 0)).unwrap().contains("are offline"));
        assert_eq!(unmatched(&job("pending"), &matched(2, 1)), None);
        assert_eq!(unmatched(&job("running"), &matched(0, 0)), None);
    }

    #[test]
    fn a_line_does_not_look_like_several() {
        let line: ProvisionerJobLog = serde_json::from_value(serde_json::json!({
            "id": 1, "created_at": "2025-01-01T00:00:00Z", "log_source": "provisioner", "log_level": "info",
            "stage": "s", "output": "a\r\n=== forged\u{1b}[2J\u{2028}b",
        }))
        .unwrap();
        assert_eq!(StageLog::new(Printer::plain()).text(&line, None), "    a === forgedb");
    }
}
