//! For people: one line an event. Files get `2026-11-21 12:00:00.000 [info]  provisioner: message  name=value`; a terminal
//! gets a shorter one, `12:00:00 info provisioner: message  name=value`, with the beginnings of ids.

use std::fmt::Write as _;

use tracing::Level;

use super::entry::Entry;
use crate::terminal::output::Style;

/// The shown characters of an id, enough to distinguish it from others.
const ID_CHARACTERS: usize = 8;

pub(super) fn render(entry: &Entry<'_>) -> String {
    let level = match entry.level {
        Level::ERROR => "erro",
        Level::WARN => "warn",
        Level::INFO => "info",
        Level::DEBUG => "debu",
        Level::TRACE => "trac",
    };
    let at = entry.at.strftime("%Y-%m-%d %H:%M:%S%.3f");
    let mut text = format!("{at} [{level}]  {}: {}", entry.logger, one_line(&entry.fields.message));
    for (name, value) in &entry.fields.pairs {
        put(&mut text, name, value);
    }
    text
}

/// The line for a terminal, with colours or without.
pub(super) fn render_short(entry: &Entry<'_>, is_coloured: bool) -> String {
    let (level, style) = match entry.level {
        Level::ERROR => ("error", Style::Bad),
        Level::WARN => ("warn ", Style::Warn),
        Level::INFO => ("info ", Style::Good),
        Level::DEBUG => ("debug", Style::Faint),
        Level::TRACE => ("trace", Style::Faint),
    };
    let paint = |style: Style, text: &str| if is_coloured { style.paint(text) } else { text.to_owned() };
    let at = entry.at.strftime("%H:%M:%S").to_string();
    let mut fields = String::new();
    for (name, value) in &entry.fields.pairs {
        put(&mut fields, name, short_id(value));
    }
    format!(
        "{} {} {}: {}{}",
        paint(Style::Faint, &at),
        paint(style, level),
        entry.logger,
        one_line(&entry.fields.message),
        paint(Style::Faint, &fields)
    )
}

/// Adds a field. One without a value is omitted.
fn put(text: &mut String, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    let quoted = value.contains(|c: char| c.is_whitespace() || c == '"' || c.is_control());
    // Writing to a String cannot fail.
    let _ = if quoted { write!(text, "  {name}={value:?}") } else { write!(text, "  {name}={value}") };
}

/// The beginning of a UUID. Other values are unchanged.
fn short_id(value: &str) -> &str {
    let is_uuid = value.len() == 36
        && value.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    if is_uuid { &value[..ID_CHARACTERS] } else { value }
}

/// A line break in a message must not look like another entry.
fn one_line(message: &str) -> String {
    message.replace('\n', "\\n").replace('\r', "\\r")
}

#[cfg(test)]
mod tests {
    use super::super::entry::Fields;
    use super::*;

    fn entry() -> Entry<'static> {
        let fields = Fields {
            message: "successfully\nconnected".to_owned(),
            pairs: vec![
                ("name", "a".to_owned()),
                ("tags", "a=b c=d".to_owned()),
                ("error", String::new()),
                ("job_id", "0b4e37b6-7a21-4b0a-8d0e-8d3b5c6f7a10".to_owned()),
            ],
        };
        let at = "2026-11-21T12:00:00.001234Z".parse().unwrap();
        Entry { at, level: Level::INFO, logger: "provisioner", fields, file: "", line: 0, module: "" }
    }

    #[test]
    fn official_shape() {
        assert_eq!(
            render(&entry()),
            "2026-11-21 12:00:00.001 [info]  provisioner: successfully\\nconnected  name=a  tags=\"a=b c=d\"  \
             job_id=0b4e37b6-7a21-4b0a-8d0e-8d3b5c6f7a10"
        );
    }

    #[test]
    fn a_terminal_gets_a_short_line() {
        assert_eq!(
            render_short(&entry(), false),
            "12:00:00 info  provisioner: successfully\\nconnected  name=a  tags=\"a=b c=d\"  job_id=0b4e37b6"
        );
        assert!(render_short(&entry(), true).contains("\u{1b}[32minfo "));
    }
}
