//! The output while a job waits: why it waits and what to do, shown again when it changes.

use std::time::Instant;

use coder_api::client::{Client, Error};
use coder_api::daemons::MatchedProvisioners;
use coder_api::explanations::WaitingReason;
use coder_api::jobs::ProvisionerJob;

use crate::job::follow;
use crate::terminal::output::{self, Printer, Style};
use crate::terminal::spinner;

/// What was shown about the wait of one job.
pub(crate) struct QueueStatus<'a> {
    printer: Printer,
    /// The daemons that accepted the job, for servers that cannot explain why it waits.
    matched: Option<&'a MatchedProvisioners>,
    looks: u32,
    /// Whether the server can explain it. Official servers cannot.
    explains: bool,
    position: Option<(i64, i64)>,
    last: String,
    since: Instant,
}

impl<'a> QueueStatus<'a> {
    /// Nothing was shown yet.
    pub(crate) fn new(printer: Printer, matched: Option<&'a MatchedProvisioners>) -> Self {
        let (last, since) = (String::new(), Instant::now());
        Self { printer, matched, looks: 0, explains: true, position: None, last, since }
    }

    /// Polls the waiting job, once a second. The first poll shows nothing, because most jobs are acquired at once.
    pub(crate) async fn look(&mut self, client: &Client, job: &ProvisionerJob) -> Result<(), Error> {
        self.looks += 1;
        if self.looks > 1 && self.explains {
            match client.explain_job(job.organization_id, job.id).await? {
                Some(explanation) => self.show_reason(explanation.reasons.first()),
                None => {
                    self.explains = false;
                    if let Some(matched) = self.matched {
                        follow::warn_unmatched(&self.printer, job, matched);
                    }
                }
            }
        }
        if !self.explains {
            self.show_position(job);
        }
        Ok(())
    }

    /// On a terminal a short reason is one line with the time. A long one is printed, with a line below it for the time.
    fn show_reason(&mut self, reason: Option<&WaitingReason>) {
        let text = reason.map(line).unwrap_or_default();
        if text.is_empty() {
            return;
        }
        let elapsed = self.since.elapsed();
        let timed = |text: &str| format!("{} {text}{}", spinner::frame(elapsed), spinner::passed(elapsed));
        let whole = timed(&text);
        if self.printer.is_live() && fits(&whole, output::error_width()) {
            self.printer.draw_line(Style::Code, &whole);
        } else {
            if text != self.last {
                self.printer.note(&self.printer.paint(Style::Faint, &format!("    {text}")));
            }
            self.printer.draw_line(Style::Code, &timed("waiting for a daemon"));
        }
        self.last = text;
    }

    /// The queue position, which is all that official servers report.
    fn show_position(&mut self, job: &ProvisionerJob) {
        let position = (job.queue_position, job.queue_size);
        if self.position.is_some() && self.position != Some(position) && job.queue_position > 0 {
            let text = format!("    queue position {} of {}", job.queue_position, job.queue_size);
            self.printer.note(&self.printer.paint(Style::Faint, &text));
        }
        self.position = Some(position);
    }

    /// The wait is over.
    pub(crate) fn end(&mut self) {
        if !self.last.is_empty() {
            self.printer.draw("");
        }
    }
}

/// One line: why it waits, and what to do unless that is temporary.
fn line(reason: &WaitingReason) -> String {
    let mut text = format!("waiting: {}", reason.message);
    if !reason.passes_by_itself && !reason.next_step.is_empty() {
        text.push(' ');
        text.push_str(&reason.next_step);
    }
    // A text of the server, which must not control the terminal.
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A line that will be replaced must not wrap, or a part of it stays. A longer text is printed instead.
fn fits(text: &str, columns: Option<u16>) -> bool {
    text.chars().count() < usize::from(columns.unwrap_or(80))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_step_is_left_out_of_reasons_that_pass_by_themselves() {
        let reason = |passes_by_itself| WaitingReason {
            code: "busy".to_owned(),
            message: "All are busy.\u{1b}[2J".to_owned(),
            next_step: "Start another.".to_owned(),
            passes_by_itself,
        };
        assert_eq!(line(&reason(true)), "waiting: All are busy. [2J");
        assert_eq!(line(&reason(false)), "waiting: All are busy. [2J Start another.");
    }

    #[test]
    fn the_same_reason_is_printed_once() {
        let mut waiting = QueueStatus::new(Printer::plain(), None);
        let reason = WaitingReason { message: "No daemon.".to_owned(), ..WaitingReason::default() };
        waiting.show_reason(Some(&reason));
        let last = waiting.last.clone();
        waiting.show_reason(Some(&reason));
        waiting.show_reason(None);
        assert_eq!((waiting.last.as_str(), last.as_str()), ("waiting: No daemon.", "waiting: No daemon."));
    }

    #[test]
    fn a_drawn_line_is_narrower_than_the_terminal() {
        assert!(fits("1234", Some(5)) && !fits("12345", Some(5)));
        assert!(!fits(&"x".repeat(80), None));
    }
}
