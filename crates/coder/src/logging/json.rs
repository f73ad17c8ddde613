//! JSON lines with the official field names.

use serde_json::{Map, Value, json};

use super::entry::Entry;

pub(super) fn render(entry: &Entry<'_>) -> String {
    let mut object = json!({
        "ts": entry.at.to_string(),
        "level": entry.level.as_str(),
        "msg": entry.fields.message,
        "caller": format!("{}:{}", entry.file, entry.line),
        "func": entry.module,
        "logger_names": [entry.logger],
    });
    if !entry.fields.pairs.is_empty() {
        object["fields"] = Value::Object(fields(entry));
    }
    object.to_string()
}

pub(super) fn fields(entry: &Entry<'_>) -> Map<String, Value> {
    entry
        .fields
        .pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), Value::String(value.clone())))
        .collect()
}
