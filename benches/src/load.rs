//! Imports and builds through fake daemons: the load driver runs as a process of its own, so that it and the server share nothing.

use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Setup;
use crate::process::{Database, Deployment};
use crate::report::Row;

/// Workspace builds with eight clients; on SQLite, and on Postgres when there is one.
pub(crate) fn builds(setup: &Setup) -> Result<Vec<Row>> {
    let measure = |database: &Database, name: &str| -> Result<Row> {
        let deployment = Deployment::start(setup, database, &["--provisioner-daemons=0"])?;
        let report = drive(&deployment, &["builds"])?;
        let what = format!("workspace builds a second, 20 fake daemons, 8 clients ({name})");
        Ok(Row::at_least(what, figure(&report, "per_second")?, 400.0, "/s"))
    };
    let mut rows = vec![measure(&Database::Sqlite, "SQLite")?];
    if let Some(database) = Database::on_postgres(setup)? {
        rows.push(measure(&database, "Postgres")?);
    }
    Ok(rows)
}

/// Latency with one client, throughput with eight; on SQLite, and on Postgres when there is one.
pub(crate) fn imports(setup: &Setup) -> Result<Vec<Row>> {
    let mut rows = measure(setup, &Database::Sqlite, "SQLite")?;
    if let Some(database) = Database::on_postgres(setup)? {
        rows.extend(measure(setup, &database, "Postgres")?);
    }
    Ok(rows)
}

fn measure(setup: &Setup, database: &Database, name: &str) -> Result<Vec<Row>> {
    let deployment = Deployment::start(setup, database, &["--provisioner-daemons=0"])?;
    let latency = drive(&deployment, &["latency"])?;
    let throughput = drive(&deployment, &["throughput"])?;
    let what = |text: &str| format!("{text} ({name})");
    Ok(vec![
        Row::at_most(
            what("POST of an import → job in a fake daemon's hands, p50"),
            figure(&latency, "p50_ms")?,
            3.0,
            "ms",
        ),
        Row::at_most(what("the same, p99"), figure(&latency, "p99_ms")?, 10.0, "ms"),
        Row::at_least(
            what("imports a second, 20 fake daemons, 8 clients"),
            figure(&throughput, "per_second")?,
            640.0,
            "/s",
        ),
    ])
}

/// A figure of a report.
pub(crate) fn figure(report: &Value, key: &str) -> Result<f64> {
    report[key].as_f64().with_context(|| format!("no {key} in {report}"))
}

/// The driver, directed at a deployment.
pub(crate) fn command(deployment: &Deployment, mode: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?.with_file_name("load"));
    command.args(mode).args(["--url", &deployment.url()]).env("CODER_SESSION_TOKEN", deployment.token()?);
    Ok(command)
}

/// Runs the driver against a deployment; its last line is a JSON report.
pub(crate) fn drive(deployment: &Deployment, mode: &[&str]) -> Result<Value> {
    let output = command(deployment, mode)?.output().context("cannot start the load driver")?;
    if !output.status.success() {
        bail!("the load driver failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().context("the load driver printed nothing")?;
    serde_json::from_str(line).with_context(|| format!("the load driver printed {line:?}, which is not JSON"))
}
