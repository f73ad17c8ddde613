//! Thousands of daemons and waiting jobs: what the server then needs, and how quickly it answers.

use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::Setup;
use crate::load::{command, drive, figure};
use crate::process::{Database, Deployment, Running, cpu_seconds, resident_mib};
use crate::report::Row;

/// How long the server is watched while nothing happens.
const IDLE_TIME: Duration = Duration::from_secs(20);

/// Idle daemons, jobs among them, and lists of a long queue.
pub(crate) fn scale(setup: &Setup) -> Result<Vec<Row>> {
    let mut rows = fleets(setup)?;
    rows.extend(listing(setup, &Database::Sqlite, "SQLite")?);
    Ok(rows)
}

fn fleets(setup: &Setup) -> Result<Vec<Row>> {
    let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
    let server = deployment.server.0.id();
    let before = resident_mib(server)?;
    let fleet = Fleet::start(&deployment, 1_000, 1)?;
    let busy = cpu_seconds(server)?;
    std::thread::sleep(IDLE_TIME);
    let share = (cpu_seconds(server)? - busy) / IDLE_TIME.as_secs_f64() * 100.0;
    let each = (resident_mib(server)? - before) * 1024.0 / 1_000.0;
    let mut rows = vec![
        Row::at_most("1,000 daemons: connect all", fleet.connected_s, 1.0, "s"),
        Row::at_most("1,000 daemons idle: server CPU, of one core", share, 0.3, "%"),
        Row::at_most("1,000 daemons idle: server memory for each", each, 20.0, "KiB"),
    ];
    drop((fleet, deployment));

    let (resident, p99) = large_fleet(setup, &[])?;
    rows.extend([
        Row::at_most("10,000 daemons idle in 1,000 tag sets: server RSS", resident, 300.0, "MiB"),
        Row::at_most("enqueue → acquired with those connected, p99", p99, 20.0, "ms"),
    ]);
    let (_, p99) = large_fleet(setup, &["--dangerous-drop-wake-ups"])?;
    rows.push(Row::at_most("the same with every notification dropped, p99", p99, 1_000.0, "ms"));
    Ok(rows)
}

/// The server's memory in MiB with 10,000 idle daemons, and the 99th percentile of the time in ms until one of them has a
/// job.
fn large_fleet(setup: &Setup, flags: &[&str]) -> Result<(f64, f64)> {
    let flags = [&["--provisioner-daemons=0"], flags].concat();
    let deployment = Deployment::start(setup, &Database::Sqlite, &flags)?;
    let mut fleet = Fleet::start(&deployment, 10_000, 1_000)?;
    std::thread::sleep(IDLE_TIME / 2);
    let resident = resident_mib(deployment.server.0.id())?;
    Ok((resident, figure(&fleet.report()?, "p99_ms")?))
}

fn listing(setup: &Setup, database: &Database, name: &str) -> Result<Vec<Row>> {
    let deployment = Deployment::start(setup, database, &["--provisioner-daemons=0"])?;
    let short = drive(&deployment, &["listing", "--waiting", "1000"])?;
    let long = drive(&deployment, &["listing", "--waiting", "99000"])?;
    let growth = figure(&long, "p50_ms")? / figure(&short, "p50_ms")?;
    Ok(vec![
        Row::at_most(
            format!("fifty jobs with places, 100,000 waiting, p99 ({name})"),
            figure(&long, "p99_ms")?,
            20.0,
            "ms",
        ),
        Row::at_most(format!("the same, growth of the median from 1,000 ({name})"), growth, 1.3, "×"),
    ])
}

/// The load driver with its daemons connected.
struct Fleet {
    driver: Running,
    lines: BufReader<ChildStdout>,
    connected_s: f64,
}

impl Fleet {
    fn start(deployment: &Deployment, daemons: u32, tag_sets: u32) -> Result<Self> {
        let (daemons, tag_sets) = (daemons.to_string(), tag_sets.to_string());
        let quiet = (IDLE_TIME + Duration::from_secs(5)).as_secs().to_string();
        let mode = ["fleet", "--daemons", &daemons, "--tag-sets", &tag_sets, "--seconds", &quiet];
        let mut driver = Running(command(deployment, &mode)?.stdout(Stdio::piped()).spawn()?);
        let output = driver.0.stdout.take().context("the driver's output is a pipe")?;
        let mut fleet = Self { driver, lines: BufReader::new(output), connected_s: 0.0 };
        fleet.connected_s = figure(&fleet.line()?, "connected_s")?;
        Ok(fleet)
    }

    /// Waits for its last line.
    fn report(&mut self) -> Result<Value> {
        let report = self.line()?;
        self.driver.0.wait()?;
        Ok(report)
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        serde_json::from_str(&line)
            .with_context(|| format!("the load driver printed {line:?}, which is not JSON"))
    }
}
