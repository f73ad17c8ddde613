//! Converts log lines of daemons to rows.

use coder_domain::Timestamp;
use coder_store::jobs::logs::{Level, NewLine, Source};
use coder_wire::messages::provisioner::LogLevel;
use coder_wire::messages::provisionerd::{Log, LogSource};

use super::refusal::Refusal;

/// Longest heading in characters (wire-protocol 4.3).
const STAGE_CHARACTERS: usize = 128;
/// Longest row in bytes of JSON text; official clients read at most 32 KiB a message (http-api 10.1).
const ROW_BYTES: usize = 16 << 10;

/// Reads lines. An unknown source or level is an error for all of them (wire-protocol 5.5). Long lines become several rows.
pub fn read(logs: &[Log], now: Timestamp) -> Result<Vec<NewLine>, Refusal> {
    let mut lines = Vec::with_capacity(logs.len());
    for log in logs {
        let line = head(log, now)?;
        let mut rest = log.output.as_str();
        loop {
            let (output, tail) = rest.split_at(row_end(rest));
            lines.push(NewLine { output: output.to_owned(), ..line.clone() });
            if tail.is_empty() {
                break;
            }
            rest = tail;
        }
    }
    Ok(lines)
}

/// Reads numbered lines. Each stays one row: control characters are replaced in rows that would be too long for clients.
pub fn read_numbered(logs: &[Log], now: Timestamp) -> Result<Vec<NewLine>, Refusal> {
    let read = |log: &Log| {
        let mut output = log.output.clone();
        if row_end(&output) < output.len() {
            output = output.replace(|character: char| character.is_control() && character != '\t', "?");
        }
        Ok(NewLine { output, ..head(log, now)? })
    };
    logs.iter().map(read).collect()
}

/// A line without its text.
fn head(log: &Log, now: Timestamp) -> Result<NewLine, Refusal> {
    let source = match LogSource::try_from(log.source) {
        Ok(LogSource::ProvisionerDaemon) => Source::ProvisionerDaemon,
        Ok(LogSource::Provisioner) => Source::Provisioner,
        Err(_) => return Err(Refusal::invalid(format!("unknown log source {}", log.source))),
    };
    let level = match LogLevel::try_from(log.level) {
        Ok(LogLevel::Trace) => Level::Trace,
        Ok(LogLevel::Debug) => Level::Debug,
        Ok(LogLevel::Info) => Level::Info,
        Ok(LogLevel::Warn) => Level::Warn,
        Ok(LogLevel::Error) => Level::Error,
        Err(_) => return Err(Refusal::invalid(format!("unknown log level {}", log.level))),
    };
    // A daemon's clock may be wrong. Only invalid times are replaced.
    let created_at = Timestamp::from_millisecond(log.created_at).unwrap_or(now);
    let mut stage = log.stage.clone();
    if let Some((end, _)) = stage.char_indices().nth(STAGE_CHARACTERS) {
        stage.truncate(end);
    }
    Ok(NewLine { created_at, source, level, stage, output: String::new() })
}

/// The length of the text that fits into a row as JSON.
fn row_end(text: &str) -> usize {
    if text.len() <= ROW_BYTES / 6 {
        return text.len();
    }
    let mut bytes = 0;
    let escaped = |character: char| match character {
        '"' | '\\' | '\n' | '\r' | '\t' => 2,
        '\0'..='\u{1f}' => 6,
        other => other.len_utf8(),
    };
    let over = |(_, character): &(usize, char)| {
        bytes += escaped(*character);
        bytes > ROW_BYTES
    };
    text.char_indices().find(over).map_or(text.len(), |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(output: &str) -> Log {
        Log {
            source: 1,
            level: 2,
            created_at: 1_700_000_000_123,
            stage: "Plan".to_owned(),
            output: output.to_owned(),
        }
    }

    fn outputs(output: &str) -> Vec<String> {
        read(&[log(output)], Timestamp::UNIX_EPOCH).unwrap().into_iter().map(|line| line.output).collect()
    }

    #[test]
    fn lines_keep_their_millisecond_source_and_level() {
        let line = read(&[log("x")], Timestamp::UNIX_EPOCH).unwrap().remove(0);
        assert_eq!(line.created_at.as_millisecond(), 1_700_000_000_123);
        assert_eq!((line.source, line.level), (Source::Provisioner, Level::Info));
    }

    #[test]
    fn long_lines_become_consecutive_rows_that_clients_can_read() {
        for text in ["ä".repeat(50_000), "\u{1}".repeat(50_000), "\"".repeat(40_000), "x".repeat(16 << 10)] {
            let rows = outputs(&text);
            assert_eq!(rows.concat(), text);
            assert!(rows.iter().all(|row| serde_json::to_string(row).unwrap().len() <= ROW_BYTES + 2));
        }
        assert_eq!(outputs(""), [""], "stage markers have no output");
    }

    #[test]
    fn a_numbered_line_stays_one() {
        for text in ["\u{1}".repeat(16 << 10), "x".repeat(16 << 10), "a\tb".to_owned(), String::new()] {
            let lines = read_numbered(&[log(&text), log("next")], Timestamp::UNIX_EPOCH).unwrap();
            assert_eq!(lines.len(), 2);
            assert_eq!(lines[0].output.chars().count(), text.chars().count());
            assert!(serde_json::to_string(&lines[0].output).unwrap().len() <= ROW_BYTES + 2);
        }
    }

    #[test]
    fn headings_are_cut_and_unknown_words_refused() {
        let long = Log { stage: "ü".repeat(200), ..log("x") };
        let line = read(&[long], Timestamp::UNIX_EPOCH).unwrap().remove(0);
        assert_eq!(line.stage.chars().count(), STAGE_CHARACTERS);
        assert!(read(&[Log { source: 2, ..log("x") }], Timestamp::UNIX_EPOCH).is_err());
        assert!(read(&[Log { level: 9, ..log("x") }], Timestamp::UNIX_EPOCH).is_err());
        let timeless = read(&[Log { created_at: i64::MAX, ..log("x") }], Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(timeless[0].created_at, Timestamp::UNIX_EPOCH);
    }
}
