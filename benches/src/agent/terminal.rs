//! Keys in the web terminal.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::quickstart::Quickstart;
use crate::Setup;
use crate::load::figure;
use crate::report::Row;

/// From a key to its echo, over the WebSocket that the page in the browser uses.
pub(crate) fn terminal(setup: &Setup) -> Result<Vec<Row>> {
    let quickstart = Quickstart::start(setup)?;
    let list: Value = serde_json::from_str(&quickstart.cli(&["list", "-o", "json"])?)?;
    let agent = list[0]["latest_build"]["resources"]
        .as_array()
        .into_iter()
        .flatten()
        .find_map(|resource| resource["agents"][0]["id"].as_str())
        .context("a workspace without an agent")?;
    let token = std::fs::read_to_string(quickstart.data().join("config/session"))?;
    let mut driver = Command::new(std::env::current_exe()?.with_file_name("load"));
    driver.args(["terminal", "--agent", agent, "--url", &format!("http://127.0.0.1:{}", quickstart.port()?)]);
    let output = driver.env("CODER_SESSION_TOKEN", token.trim()).output().context("start the load driver")?;
    if !output.status.success() {
        bail!("the load driver failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report = serde_json::from_slice(&output.stdout)?;
    Ok(vec![
        Row::seen("web terminal: from a key to its echo, p50", figure(&report, "p50_ms")?, "ms"),
        Row::at_most("web terminal: from a key to its echo, p99", figure(&report, "p99_ms")?, 15.0, "ms"),
    ])
}
