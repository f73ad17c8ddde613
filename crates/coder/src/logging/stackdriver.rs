//! JSON lines as Google's logging agent reads them.

use serde_json::{Value, json};

use super::entry::Entry;

pub(super) fn render(entry: &Entry<'_>) -> String {
    let severity = match entry.level.as_str() {
        "WARN" => "WARNING",
        "TRACE" => "DEBUG",
        other => other,
    };
    let mut object = json!({
        "severity": severity,
        "timestamp": entry.at.to_string(),
        "message": entry.fields.message,
        "logging.googleapis.com/sourceLocation": {
            "file": entry.file,
            "line": entry.line.to_string(),
            "function": entry.module,
        },
        "logging.googleapis.com/labels": { "logger": entry.logger },
    });
    if let Value::Object(object) = &mut object {
        object.extend(super::json::fields(entry));
    }
    object.to_string()
}
