//! How long it takes until something answers: the server, and `coder version`.

use std::process::Command;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::Setup;
use crate::process;
use crate::process::Database;
use crate::report::{Row, median};

/// The figures are medians of so many runs.
const RUN_COUNT: usize = 9;

/// First and later start of a server, until `/healthz` answers.
pub(crate) fn server(setup: &Setup) -> Result<Vec<Row>> {
    let (mut first, mut next) = (Vec::new(), Vec::new());
    for _ in 0..RUN_COUNT {
        let folder = tempfile::tempdir()?;
        for times in [&mut first, &mut next] {
            let (server, _, took) = process::server(&setup.coder, folder.path(), &Database::Sqlite, &[])?;
            times.push(took.as_secs_f64() * 1000.0);
            drop(server);
        }
    }
    let (first, next) = (median(&mut first), median(&mut next));
    Ok(vec![
        Row::at_most(
            "server, first start with an empty database until `/healthz` answers",
            first,
            150.0,
            "ms",
        ),
        Row::at_most("server, next start", next, 60.0, "ms"),
    ])
}

/// `coder version`: time, memory; and the size of the binary.
pub(crate) fn version(setup: &Setup) -> Result<Vec<Row>> {
    let mut times = Vec::new();
    let mut peak: f64 = 0.0;
    for _ in 0..RUN_COUNT * 3 {
        let start = Instant::now();
        let child = Command::new(&setup.coder).arg("version").stdout(std::process::Stdio::null()).spawn()?;
        let (status, mib) = wait_with_peak(child)?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
        if !status {
            bail!("coder version failed");
        }
        peak = peak.max(mib);
    }
    #[expect(clippy::cast_precision_loss, reason = "a file's size is far below 2^52")]
    let size = std::fs::metadata(&setup.coder)?.len() as f64 / 1024.0 / 1024.0;
    Ok(vec![
        Row::at_most("`coder version`: time", median(&mut times), 8.0, "ms"),
        Row::at_most("`coder version`: largest memory", peak, 12.0, "MiB"),
        Row::at_most("binary", size, 30.0, "MiB"),
    ])
}

/// Waits for a child and returns whether it succeeded and its largest resident memory in MiB.
///
/// The figure is read from `/proc` in a tight loop while the child lives; it only grows, so the last reading counts.
fn wait_with_peak(mut child: std::process::Child) -> Result<(bool, f64)> {
    let pid = child.id();
    let mut peak: f64 = 0.0;
    loop {
        if let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) {
            let kib = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
            let kib = kib.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
            peak = peak.max(kib.unwrap_or_default() / 1024.0);
        }
        if let Some(status) = child.try_wait()? {
            return Ok((status.success(), peak));
        }
    }
}
