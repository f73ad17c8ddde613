//! The index of a chart repository: what Helm reads first. It is JSON, which is YAML too.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::Release;

/// The entry of one package: the fields of its `Chart.yaml`, its digest and its place beside the index.
pub(super) fn entry(directory: &Path, release: &Release, file: &str, package: &[u8]) -> Result<Value> {
    let path = directory.join("Chart.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut fields: Map<String, Value> =
        serde_saphyr::from_str(&text).with_context(|| format!("{} is not YAML", path.display()))?;
    fields.insert("version".to_owned(), json!(release.version));
    fields.insert("appVersion".to_owned(), json!(release.version));
    // The library is inside the package: there is nothing to fetch.
    fields.remove("dependencies");
    fields.insert("digest".to_owned(), json!(hex::encode(Sha256::digest(package))));
    fields.insert("urls".to_owned(), json!([file]));
    Ok(Value::Object(fields))
}

/// The text of the index.
pub(super) fn index(entries: Vec<Value>) -> Result<String> {
    let mut charts = Map::new();
    for entry in entries {
        let name = entry["name"].as_str().context("a chart without a name")?.to_owned();
        charts.insert(name, json!([entry]));
    }
    let index = json!({ "apiVersion": "v1", "entries": charts });
    Ok(format!("{}\n", serde_json::to_string_pretty(&index)?))
}
