//! Many builds at once: one daemon with many slots, against many daemons.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::Setup;
use crate::build::{SMALL_TEMPLATE, seconds};
use crate::process::{Database, Deployment, Running, peak_mib};
use crate::report::{Row, median};

/// How many builds run at once.
const BUILD_COUNT: usize = 16;

/// Sixteen builds at once: one daemon with as many slots, against as many daemons.
pub(crate) fn at_once(setup: &Setup) -> Result<Vec<Row>> {
    let (mut slots, mut daemons) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        slots.push(crowd(setup, 1, BUILD_COUNT)?);
        daemons.push(crowd(setup, BUILD_COUNT, 1)?);
    }
    let rate = |runs: &[(f64, f64)]| median(&mut runs.iter().map(|run| run.0).collect::<Vec<_>>());
    let memory = |runs: &[(f64, f64)]| median(&mut runs.iter().map(|run| run.1).collect::<Vec<_>>());
    Ok(vec![
        Row::seen("16 builds at once, one daemon with 16 slots", rate(&slots), "builds a minute"),
        Row::at_least("the same ÷ 16 daemons: builds a minute", rate(&slots) / rate(&daemons), 1.0, "×"),
        Row::at_most(
            "the same ÷ 16 daemons: largest memory of the daemons",
            memory(&slots) / memory(&daemons),
            0.2,
            "×",
        ),
    ])
}

/// Builds a minute, and the daemons' largest memory in MiB.
fn crowd(setup: &Setup, daemons: usize, slots: usize) -> Result<(f64, f64)> {
    let deployment = Deployment::start(setup, &Database::Sqlite, &["--provisioner-daemons=0"])?;
    let slots = format!("--slots={slots}");
    let mut running = Vec::new();
    for number in 0..daemons {
        running.push(deployment.daemon(&format!("builder-{number}"), &[&slots], &[])?);
    }
    deployment.push("bench", SMALL_TEMPLATE)?;
    let names: Vec<_> = (0..BUILD_COUNT).map(|number| format!("box-{number}")).collect();
    for name in &names {
        deployment.cli(&["create", name, "--template", "bench", "-y"])?;
        deployment.cli(&["stop", name, "-y"])?;
    }
    let starts: Vec<_> = names
        .iter()
        .map(|name| {
            let mut start = deployment.command(&["start", name, "-y"]);
            start.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Running)
        })
        .collect::<std::io::Result<_>>()?;
    for mut start in starts {
        if !start.0.wait()?.success() {
            bail!("a start failed");
        }
    }
    let list: Value = serde_json::from_str(&deployment.cli(&["list", "-o", "json"])?)?;
    let (mut first, mut last) = (f64::MAX, f64::MIN);
    for workspace in list.as_array().context("a list of workspaces")? {
        let job = &workspace["latest_build"]["job"];
        first = first.min(seconds(&job["created_at"])?);
        last = last.max(seconds(&job["completed_at"])?);
    }
    let mut memory = 0.0;
    for daemon in &running {
        memory += peak_mib(daemon.0.id())?;
    }
    let builds = u32::try_from(BUILD_COUNT).map(f64::from)?;
    Ok((builds / (last - first) * 60.0, memory))
}
