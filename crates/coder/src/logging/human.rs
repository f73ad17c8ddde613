//! `2026-11-21 12:00:00.000 [info]  provisioner: successfully connected to coderd  name=pool-1`

use std::fmt::Write as _;

use tracing::Level;

use super::entry::Entry;

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
        let quoted =
            value.is_empty() || value.contains(|c: char| c.is_whitespace() || c == '"' || c.is_control());
        // Writing to a String cannot fail.
        let _ = if quoted { write!(text, "  {name}={value:?}") } else { write!(text, "  {name}={value}") };
    }
    text
}

/// A message never becomes a second entry.
fn one_line(message: &str) -> String {
    message.replace('\n', "\\n").replace('\r', "\\r")
}

#[cfg(test)]
mod tests {
    use super::super::entry::Fields;
    use super::*;

    #[test]
    fn official_shape() {
        let fields = Fields {
            message: "successfully\nconnected".to_owned(),
            pairs: vec![("name", "a".to_owned()), ("tags", "a=b c=d".to_owned())],
        };
        let at = "2026-11-21T12:00:00.001234Z".parse().unwrap();
        let entry =
            Entry { at, level: Level::INFO, logger: "provisioner", fields, file: "", line: 0, module: "" };
        assert_eq!(
            render(&entry),
            "2026-11-21 12:00:00.001 [info]  provisioner: successfully\\nconnected  name=a  tags=\"a=b c=d\""
        );
    }
}
