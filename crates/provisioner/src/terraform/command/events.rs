//! One line of Terraform's machine-readable output, and the log lines it becomes (terraform 1.7).

use coder_wire::messages::provisioner::LogLevel;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "@level", default)]
    level: String,
    #[serde(rename = "@message", default)]
    message: String,
    #[serde(rename = "@timestamp", default)]
    pub(crate) timestamp: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: String,
    #[serde(default)]
    pub(crate) message_code: String,
    #[serde(default)]
    pub(crate) hook: Option<Hook>,
    #[serde(default)]
    pub(crate) change: Option<PlannedChange>,
    #[serde(default)]
    diagnostic: Option<Diagnostic>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Hook {
    #[serde(default)]
    pub(crate) action: String,
    #[serde(default)]
    pub(crate) resource: ResourceRef,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct PlannedChange {
    #[serde(default)]
    pub(crate) action: String,
    #[serde(default)]
    pub(crate) resource: ResourceRef,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct ResourceRef {
    #[serde(default)]
    pub(crate) addr: String,
    #[serde(default)]
    pub(crate) implied_provider: String,
    #[serde(default)]
    pub(crate) resource_type: String,
}

#[derive(Debug, Default, Deserialize)]
struct Diagnostic {
    #[serde(default)]
    severity: String,
    #[serde(default)]
    summary: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    range: Option<Range>,
    #[serde(default)]
    snippet: Option<Snippet>,
}

#[derive(Debug, Deserialize)]
struct Range {
    #[serde(default)]
    filename: String,
    #[serde(default)]
    start: Position,
}

#[derive(Debug, Default, Deserialize)]
struct Position {
    #[serde(default)]
    line: u64,
}

#[derive(Debug, Deserialize)]
struct Snippet {
    #[serde(default)]
    context: Option<String>,
    #[serde(default)]
    code: String,
    #[serde(default)]
    start_line: u64,
    #[serde(default)]
    values: Option<Vec<SnippetValue>>,
}

#[derive(Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct SnippetValue {
    #[serde(default)]
    traversal: String,
    #[serde(default)]
    statement: String,
}

/// A level and a text of one or more lines.
pub(crate) type LogLine = (LogLevel, String);

impl Event {
    /// Parses a line; `None` when it is not a JSON object.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        line.trim_start().starts_with('{').then(|| serde_json::from_str(line).ok()).flatten()
    }

    /// The log lines of an event on standard output.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        let mut lines = Vec::new();
        let level = level(&self.level).unwrap_or_else(|| {
            lines.push((LogLevel::Warn, format!("unknown log level {:?} in Terraform's output", self.level)));
            LogLevel::Info
        });
        lines.push((level, self.message.clone()));
        if let Some(diagnostic) = &self.diagnostic {
            let level = crate::terraform::command::events::level(&diagnostic.severity).unwrap_or(level);
            lines.extend(diagnostic.render().lines().map(|line| (level, line.to_owned())));
        }
        lines
    }

    /// The log line of an event on standard error, where only debug output appears as JSON.
    pub(crate) fn stderr_line(&self) -> Option<LogLine> {
        match level(&self.level) {
            Some(LogLevel::Trace) => None,
            Some(LogLevel::Info) => Some((LogLevel::Debug, self.message.clone())),
            Some(level) => Some((level, self.message.clone())),
            None => Some((LogLevel::Info, self.message.clone())),
        }
    }

    /// Summary and detail of an error.
    pub(crate) fn error_text(&self) -> Option<String> {
        let diagnostic = self.diagnostic.as_ref().filter(|diagnostic| diagnostic.severity == "error")?;
        Some(format!("{} {}", diagnostic.summary, diagnostic.detail))
    }

    /// An error in one line, for the job's error.
    pub(crate) fn error_summary(&self) -> Option<String> {
        let diagnostic = self.diagnostic.as_ref().filter(|diagnostic| diagnostic.severity == "error")?;
        let mut text = diagnostic.summary.lines().next().unwrap_or_default().to_owned();
        if let Some(range) = &diagnostic.range {
            text.push_str(&format!(" (on {} line {})", range.filename, range.start.line));
        }
        let mut lines = diagnostic.detail.lines().map(str::trim).filter(|line| !line.is_empty());
        if let Some(detail) = lines.next() {
            text.push_str(": ");
            text.push_str(detail);
            // A line that ends with a colon says nothing by itself.
            while text.ends_with(':')
                && let Some(announced) = lines.next()
            {
                text.push(' ');
                text.push_str(announced);
            }
        }
        if let Some(status) = exit_status(&diagnostic.detail).filter(|status| !text.contains(*status)) {
            text.push_str(" … ");
            text.push_str(status);
        }
        Some(text)
    }
}

/// The exit status that follows a multi-line command in the message.
fn exit_status(detail: &str) -> Option<&str> {
    const EXIT_STATUS: &str = "exit status ";
    let (_, behind) = detail.rsplit_once("': exit status ")?;
    let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
    let end = detail.len() - behind.len() + digits;
    detail.get(end - digits - EXIT_STATUS.len()..end)
}

fn level(text: &str) -> Option<LogLevel> {
    Some(match text.to_ascii_lowercase().as_str() {
        "trace" => LogLevel::Trace,
        "debug" => LogLevel::Debug,
        "info" => LogLevel::Info,
        "warn" | "warning" => LogLevel::Warn,
        "error" => LogLevel::Error,
        _ => return None,
    })
}

impl Diagnostic {
    /// Position, code and detail; the message already contains the summary.
    fn render(&self) -> String {
        let mut text = String::new();
        if let Some(range) = &self.range {
            let context = self.snippet.as_ref().and_then(|snippet| snippet.context.as_deref());
            let context = context.map(|context| format!(", in {context}")).unwrap_or_default();
            text.push_str(&format!("on {} line {}{context}:\n", range.filename, range.start.line));
            match &self.snippet {
                None => text.push_str("  (source code not available)\n"),
                Some(snippet) => snippet.render(&mut text),
            }
            text.push('\n');
        }
        text.push_str(&self.detail);
        text
    }
}

impl Snippet {
    fn render(&self, text: &mut String) {
        for (line, code) in (self.start_line..).zip(self.code.split('\n')) {
            text.push_str(&format!("  {line}: {code}\n"));
        }
        let mut values: Vec<&SnippetValue> = self.values.iter().flatten().collect();
        values.sort();
        if !values.is_empty() {
            text.push_str("    ├────────────────\n");
        }
        for value in values {
            text.push_str(&format!("    │ {} {}\n", value.traversal, value.statement));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnostic_shows_place_code_values_and_detail() {
        let event = Event::parse(
            r#"{"@level":"error","@message":"Error: Bad","type":"diagnostic","diagnostic":{"severity":"error",
               "summary":"Bad","detail":"First.\nSecond.","range":{"filename":"main.tf","start":{"line":3}},
               "snippet":{"context":"resource \"a\" \"b\"","code":"x = 1\ny = 2","start_line":3,
               "values":[{"traversal":"var.z","statement":"is 1"},{"traversal":"var.a","statement":"is 2"}]}}}"#,
        )
        .unwrap();
        let lines: Vec<String> = event
            .lines()
            .into_iter()
            .map(|(level, text)| {
                assert_eq!(level, LogLevel::Error);
                text
            })
            .collect();
        assert_eq!(
            lines,
            [
                "Error: Bad",
                "on main.tf line 3, in resource \"a\" \"b\":",
                "  3: x = 1",
                "  4: y = 2",
                "    ├────────────────",
                "    │ var.a is 2",
                "    │ var.z is 1",
                "",
                "First.",
                "Second."
            ]
        );
        assert_eq!(event.error_summary().unwrap(), "Bad (on main.tf line 3): First.");
    }

    #[test]
    fn a_summary_says_what_was_announced_and_how_a_command_ended() {
        let summary = |detail: &str| {
            let diagnostic = serde_json::json!({"severity": "error", "summary": "Bad", "detail": detail});
            Event::parse(&serde_json::json!({"diagnostic": diagnostic}).to_string())
                .unwrap()
                .error_summary()
                .unwrap()
        };
        assert_eq!(
            summary("Two problems:\n\n- One:\n  it is so.\n- Two."),
            "Bad: Two problems: - One: it is so."
        );
        assert_eq!(summary("Only this:"), "Bad: Only this:");
        let command =
            |script: &str| format!("Error running command '{script}': exit status 12. Output: x\ny");
        assert_eq!(summary(&command("one\ntwo")), "Bad: Error running command 'one … exit status 12",);
        assert_eq!(summary(&command("one")), "Bad: Error running command 'one': exit status 12. Output: x",);
    }

    #[test]
    fn levels_are_mapped_per_stream() {
        let parse = |level: &str| Event::parse(&format!(r#"{{"@level":"{level}","@message":"m"}}"#)).unwrap();
        assert_eq!(parse("warning").lines(), [(LogLevel::Warn, "m".to_owned())]);
        assert_eq!(parse("odd").lines().len(), 2);
        assert_eq!(parse("trace").stderr_line(), None);
        assert_eq!(parse("info").stderr_line(), Some((LogLevel::Debug, "m".to_owned())));
        assert_eq!(parse("Error").stderr_line(), Some((LogLevel::Error, "m".to_owned())));
    }

    #[test]
    fn other_text_is_not_an_event() {
        assert!(Event::parse("plain").is_none());
        assert!(Event::parse("{broken").is_none());
        assert!(Event::parse("[1]").is_none());
    }
}
