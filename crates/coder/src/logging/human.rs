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
    let quoted = format!("{value:?}");
    let is_plain = quoted.len() == value.len() + 2 && !value.contains(char::is_whitespace);
    // Writing to a String cannot fail.
    let _ = write!(text, "  {name}={}", if is_plain { value } else { &quoted });
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

/// A message without what would move the cursor, colour the text, reverse its direction, or look like another entry.
fn one_line(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    for c in message.chars() {
        match c {
            '"' | '\'' | '\\' => text.push(c),
            _ => text.extend(c.escape_debug()),
        }
    }
    text
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
    fn what_others_wrote_neither_steers_the_terminal_nor_reads_as_another_entry() {
        let mut entry = entry();
        entry.fields.message = "say \"it's\"\u{1b}[2J\u{8}\u{9b}31m\u{202e}\u{2028}\r\nnext é日".to_owned();
        entry.fields.pairs = vec![
            ("name", "a\u{1b}[31m".to_owned()),
            ("path", "x\u{202e}y".to_owned()),
            ("host", "a\\x1b=\u{200b}".to_owned()),
            ("user", "é日".to_owned()),
        ];
        let message = r#"say "it's"\u{1b}[2J\u{8}\u{9b}31m\u{202e}\u{2028}\r\nnext é日"#;
        let fields = r#"  name="a\u{1b}[31m"  path="x\u{202e}y"  host="a\\x1b=\u{200b}"  user=é日"#;
        assert_eq!(render(&entry), format!("2026-11-21 12:00:00.001 [info]  provisioner: {message}{fields}"));
        assert_eq!(render_short(&entry, false), format!("12:00:00 info  provisioner: {message}{fields}"));
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
