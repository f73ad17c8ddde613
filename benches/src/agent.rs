//! A workspace's agent, in the workspace of `coder quickstart`: from the end of the build to its connection, its memory, and a command
//! over SSH beside one of OpenSSH's own server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::Setup;
use crate::process::{self, Running, resident_mib, wait_for};
use crate::report::{Row, median};

const RUNS: usize = 7;
/// Long enough for whatever start-up left to settle.
const SETTLE: Duration = Duration::from_secs(10);
/// Where Debian has OpenSSH's server.
const SSHD: &str = "/usr/sbin/sshd";

/// A running quickstart and the session of its user.
struct Quickstart {
    folder: TempDir,
    coder: PathBuf,
    _process: Running,
}

impl Quickstart {
    fn start(setup: &Setup) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let out = folder.path().join("out");
        let data = folder.path().join("data");
        let mut command = Command::new(&setup.coder);
        command.args(["quickstart", "--http-address", "127.0.0.1:0", "--data-dir"]).arg(&data);
        process::isolate(&mut command, folder.path());
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&out)?).stderr(Stdio::null());
        let mut running = Running(command.spawn()?);
        wait_for("quickstart", || {
            if let Some(status) = running.0.try_wait()? {
                bail!("quickstart ended with {status}");
            }
            Ok(std::fs::read_to_string(&out)?.contains("Press Ctrl-C"))
        })?;
        Ok(Self { folder, coder: setup.coder.clone(), _process: running })
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.coder);
        process::isolate(&mut command, self.folder.path());
        command.args(arguments).env("CODER_CONFIG_DIR", self.data().join("config")).stdin(Stdio::null());
        command
    }

    fn cli(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        if !output.status.success() {
            bail!("coder {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Milliseconds from the end of the last build to the connection of its agent.
    fn time_to_connect(&self) -> Result<Option<f64>> {
        let list: Value = serde_json::from_str(&self.cli(&["list", "-o", "json"])?)?;
        let build = &list[0]["latest_build"];
        let resources = build["resources"].as_array().context("a build without resources")?;
        let agents = resources.iter().filter_map(|resource| resource["agents"].as_array()).flatten();
        let connected = agents.into_iter().find_map(|agent| agent["first_connected_at"].as_str());
        let Some(connected) = connected else { return Ok(None) };
        let ended: Timestamp = build["job"]["completed_at"].as_str().context("a build that runs")?.parse()?;
        let connected: Timestamp = connected.parse()?;
        Ok(Some(connected.duration_since(ended).as_secs_f64() * 1000.0))
    }

    /// The process of the agent itself, and not the one around it.
    fn agent(&self) -> Result<u32> {
        let marker = format!("{}/cache/workspaces/", self.data().canonicalize()?.display());
        let mut pids = std::fs::read_dir("/proc")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_agent = |pid: &u32| {
            let read = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (arguments, environment) = (read("cmdline"), read("environ"));
            String::from_utf8_lossy(&arguments).contains("--no-reap")
                && String::from_utf8_lossy(&environment).contains(&marker)
        };
        pids.find(is_agent).context("no agent runs")
    }
}

/// See the module.
pub(crate) fn agent(setup: &Setup) -> Result<Vec<Row>> {
    let quickstart = Quickstart::start(setup)?;
    let mut connecting = Vec::new();
    for _ in 0..RUNS {
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
    std::thread::sleep(SETTLE);
    let memory = resident_mib(quickstart.agent()?)?;
    let mut rows = vec![
        Row::at_most("agent: from the end of the build to the connection", connecting, 300.0, "ms"),
        Row::at_most("agent idle, RSS", memory, 12.0, "MiB"),
    ];
    let config = quickstart.folder.path().join("ssh_config");
    let config = config.to_str().context("a path")?;
    quickstart.cli(&["config-ssh", "--ssh-config-file", config, "--yes"])?;
    let own = time(|| ssh(&["-F", config, "hello.coder", "true"], quickstart.folder.path()))?;
    rows.push(Row::at_most("`ssh HOST true` through the relay", own, 150.0, "ms"));
    if Path::new(SSHD).exists() {
        rows.push(Row::seen("the same with OpenSSH's server on loopback", openssh()?, "ms"));
    }
    let slim = setup.coder.with_file_name(format!("coder-linux-{}", architecture()));
    if let Ok(file) = slim.metadata() {
        #[expect(clippy::cast_precision_loss, reason = "a file's size is far below 2^52")]
        let size = file.len() as f64 / 1024.0 / 1024.0;
        rows.push(Row::at_most("program that workspaces download", size, 12.0, "MiB"));
    }
    Ok(rows)
}

const fn architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

/// The median of several runs in milliseconds; the first one is not counted.
fn time(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(&mut times))
}

fn ssh(arguments: &[&str], home: &Path) -> Result<()> {
    let mut command = Command::new("ssh");
    let output = command.args(arguments).env("HOME", home).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("ssh: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A server of OpenSSH with a fresh key for host and user.
fn openssh() -> Result<f64> {
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let keygen =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &path("key")]).status()?;
    if !keygen.success() {
        bail!("ssh-keygen ended with {keygen}");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let options = [
        format!("ListenAddress=127.0.0.1:{port}"),
        format!("HostKey={}", path("key")),
        format!("AuthorizedKeysFile={}", path("key.pub")),
        "StrictModes=no".to_owned(),
        "UsePAM=no".to_owned(),
        "PidFile=none".to_owned(),
    ];
    let mut server = Command::new(SSHD);
    server.args(["-D", "-f", "/dev/null"]);
    options.iter().for_each(|option| {
        server.args(["-o", option]);
    });
    let _server = Running(server.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?);
    wait_for("OpenSSH's server", || Ok(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
    let (port, key) = (port.to_string(), path("key"));
    let arguments = [
        "-F",
        "/dev/null",
        "-p",
        &port,
        "-i",
        &key,
        "-o",
        "StrictHostKeyChecking=no",
        "-o",
        "UserKnownHostsFile=/dev/null",
        "-o",
        "LogLevel=ERROR",
        "127.0.0.1",
        "true",
    ];
    time(|| ssh(&arguments, folder.path()))
}
