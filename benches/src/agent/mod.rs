//! A workspace's agent: how quickly it connects, what it needs, and how quickly people reach it. OpenSSH's server and plain loopback
//! are measured for comparison.

mod crowd;
mod openssh;
mod quickstart;
mod sessions;
mod slow_proxy;
mod terminal;
mod throughput;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use self::openssh::Sshd;
use self::quickstart::Quickstart;
use self::slow_proxy::{ROUND_TRIP_TIME, SlowProxy};
use crate::Setup;
use crate::process::{resident_mib, wait_for};
use crate::report::{Row, median};

pub(crate) use crowd::crowd;
pub(crate) use sessions::sessions;
pub(crate) use terminal::terminal;
pub(crate) use throughput::throughput;

/// The figures are medians of so many runs.
const RUN_COUNT: usize = 7;
/// After this time the work of the start is over.
const SETTLE_TIME: Duration = Duration::from_secs(10);

/// Start, memory, size, and one command over SSH.
pub(crate) fn agent(setup: &Setup) -> Result<Vec<Row>> {
    let quickstart = Quickstart::start(setup)?;
    let mut connecting = Vec::new();
    for _ in 0..RUN_COUNT {
        quickstart.cli(&["stop", "hello", "-y"])?;
        quickstart.cli(&["start", "hello", "-y"])?;
        let mut took = None;
        wait_for("the agent", || {
            took = quickstart.time_to_connect()?;
            Ok(took.is_some())
        })?;
        connecting.extend(took);
    }
    let connecting = median(&mut connecting);
    std::thread::sleep(SETTLE_TIME);
    let memory = resident_mib(quickstart.agent()?)?;
    let mut rows = vec![
        Row::at_most("agent: from the end of the build to the connection", connecting, 300.0, "ms"),
        Row::at_most("agent idle, RSS", memory, 12.0, "MiB"),
    ];
    let own = quickstart.ssh_config()?;
    rows.push(Row::at_most("`ssh HOST true` through the relay", time(|| own.run("true"))?, 150.0, "ms"));
    let trips = round_trips(&own, quickstart.port()?, |command, port| {
        command.env("CODER_URL", format!("http://127.0.0.1:{port}"));
    })?;
    if let Some(sshd) = Sshd::start()? {
        let ssh = sshd.client()?;
        rows.push(Row::seen("the same with OpenSSH's server on loopback", time(|| ssh.run("true"))?, "ms"));
        let official = round_trips(&ssh, sshd.port(), |command, port| {
            command.args(["-p", &port.to_string()]);
        })?;
        rows.push(Row::seen("round trips of `ssh HOST true` with OpenSSH's server", official, ""));
        rows.push(Row::seen("round trips through the relay", trips, ""));
        rows.push(Row::at_most("round trips through the relay ÷ OpenSSH's", trips / official, 1.5, "×"));
    } else {
        rows.push(Row::seen("round trips of `ssh HOST true` through the relay", trips, ""));
    }
    let slim = format!("coder-linux-{}", architecture());
    if setup.coder.with_file_name(&slim).is_file() {
        let size = downloaded_mib(&format!("http://127.0.0.1:{}/bin/{slim}", quickstart.port()?))?;
        rows.push(Row::at_most("program that workspaces download, on the wire", size, 12.0, "MiB"));
    }
    Ok(rows)
}

/// What curl downloads with the options of the bootstrap script.
fn downloaded_mib(url: &str) -> Result<f64> {
    let mut curl = Command::new("curl");
    curl.args(["-fsSL", "--compressed", "--output", "/dev/null", "--write-out", "%{size_download}", url]);
    let output = curl.output().context("start curl")?;
    if !output.status.success() {
        bail!("curl: {}", String::from_utf8_lossy(&output.stderr));
    }
    let bytes: f64 = String::from_utf8(output.stdout)?.parse().context("the number of bytes")?;
    Ok(bytes / 1024.0 / 1024.0)
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// The median of several runs in milliseconds; the first one is not counted.
fn time(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..RUN_COUNT {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&mut times))
}

/// How many round trips a command takes: what a slow way to `port` adds to its time. `divert` makes a command take another port.
fn round_trips(ssh: &Ssh, port: u16, divert: impl Fn(&mut Command, u16)) -> Result<f64> {
    let timed = |delay: Duration| {
        let proxy = SlowProxy::start(port, delay)?;
        time(|| ssh.run_with("true", |command| divert(command, proxy.port())))
    };
    let (quick, slow) = (timed(Duration::ZERO)?, timed(ROUND_TRIP_TIME)?);
    Ok((slow - quick) / (ROUND_TRIP_TIME.as_secs_f64() * 1000.0))
}

/// OpenSSH's client for one host.
struct Ssh {
    options: Vec<String>,
    host: String,
    home: PathBuf,
}

impl Ssh {
    fn run(&self, command: &str) -> Result<()> {
        self.run_with(command, |_| {})
    }

    /// Runs a command to its end; `adapt` comes before the host.
    fn run_with(&self, command: &str, adapt: impl FnOnce(&mut Command)) -> Result<()> {
        let mut ssh = Command::new("ssh");
        ssh.args(&self.options).env("HOME", &self.home).stdin(Stdio::null()).stdout(Stdio::null());
        adapt(&mut ssh);
        let output = ssh.args([&self.host, command]).output().context("start ssh")?;
        if !output.status.success() {
            bail!("ssh: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}
