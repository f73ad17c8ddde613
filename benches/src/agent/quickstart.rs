//! A `coder quickstart` and its workspace.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use super::Ssh;
use crate::Setup;
use crate::process::{self, Running, wait_for};

/// A running quickstart and the session of its user.
pub(super) struct Quickstart {
    pub(super) folder: TempDir,
    coder: PathBuf,
    process: Running,
}

impl Quickstart {
    pub(super) fn start(setup: &Setup) -> Result<Self> {
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
        Ok(Self { folder, coder: setup.coder.clone(), process: running })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.coder);
        process::isolate(&mut command, self.folder.path());
        command.args(arguments).env("CODER_CONFIG_DIR", self.data().join("config")).stdin(Stdio::null());
        command
    }

    /// The port of the server.
    pub(super) fn port(&self) -> Result<u16> {
        let url = std::fs::read_to_string(self.data().join("config/url"))?;
        let port = url.trim().trim_end_matches('/').rsplit(':').next().context("a URL with a port")?;
        Ok(port.parse()?)
    }

    /// The process of the server.
    pub(super) fn server(&self) -> u32 {
        self.process.0.id()
    }

    /// OpenSSH's client for the workspace, after `config-ssh`.
    pub(super) fn ssh_config(&self) -> Result<Ssh> {
        let config = self.folder.path().join("ssh_config").to_string_lossy().into_owned();
        self.cli(&["config-ssh", "--ssh-config-file", &config, "--yes"])?;
        let options = vec!["-F".to_owned(), config];
        Ok(Ssh { options, host: "hello.coder".to_owned(), home: self.folder.path().to_owned() })
    }

    pub(super) fn cli(&self, arguments: &[&str]) -> Result<String> {
        let output = self.command(arguments).output()?;
        if !output.status.success() {
            bail!("coder {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Milliseconds from the end of the last build to the connection of its agent.
    pub(super) fn time_to_connect(&self) -> Result<Option<f64>> {
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
    pub(super) fn agent(&self) -> Result<u32> {
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
