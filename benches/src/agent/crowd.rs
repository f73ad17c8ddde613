//! What a server needs while thousands of agents are connected and have nothing to do.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Setup;
use crate::load::{command, figure};
use crate::process::{Database, Deployment, Running, cpu_seconds, resident_mib};
use crate::report::Row;

/// How many agents.
const AGENT_COUNT: &str = "2000";
/// Two reports of each agent, and one of its two minutes between looks at the banners.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// 2,000 agents, each of a workspace of its own.
pub(crate) fn crowd(setup: &Setup) -> Result<Vec<Row>> {
    let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
    let server = deployment.server.0.id();
    let seconds = (IDLE_TIME * 3).as_secs().to_string();
    let mode = ["agents", "--agents", AGENT_COUNT, "--seconds", &seconds];
    let mut driver = Running(command(&deployment, &mode)?.stdout(Stdio::piped()).spawn()?);
    let output = driver.0.stdout.take().context("the driver's output is a pipe")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let report = serde_json::from_str(&line)
        .with_context(|| format!("the load driver printed {line:?}, which is not JSON"))?;
    // Their first reports are over then.
    std::thread::sleep(IDLE_TIME / 2);
    let busy = cpu_seconds(server)?;
    std::thread::sleep(IDLE_TIME);
    let share = (cpu_seconds(server)? - busy) / IDLE_TIME.as_secs_f64() * 100.0;
    Ok(vec![
        Row::seen("2,000 agents: connect all", figure(&report, "connected_s")?, "s"),
        Row::at_most("2,000 agents idle: server CPU, of one core", share, 2.0, "%"),
        Row::at_most("2,000 agents idle: server RSS", resident_mib(server)?, 150.0, "MiB"),
    ])
}
