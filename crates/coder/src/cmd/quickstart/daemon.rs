//! The external daemon of a quickstart: a separate process, started with `coder provisioner start`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::client::{Client, DaemonFilter};
use coder_domain::ids::OrganizationId;
use coder_domain::secret::Secret;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, Command};

use crate::env;
use crate::terminal::output::Printer;
use crate::terminal::spinner;

/// The daemon's name.
pub(super) const NAME: &str = "quickstart-daemon";
/// How long joining may take.
const JOIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a stopped daemon may take to finish.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// The daemon's cache directory.
pub(super) fn cache(directory: &Path) -> PathBuf {
    directory.join("cache")
}

/// The running process.
pub(super) struct Daemon {
    child: Child,
    /// Its standard input. The system closes it when this process ends, even if it is killed, and then the daemon ends.
    _input: ChildStdin,
    pid: u32,
    log: PathBuf,
}

impl Daemon {
    /// Starts it. The key is passed in the environment, because other users can see command lines.
    pub(super) fn start(
        directory: &Path,
        url: &str,
        key: &Secret,
        variables: impl Iterator<Item = (&'static str, OsString)>,
    ) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        let log = directory.join("daemon.log");
        let mut command = Command::new(program);
        command.args(["provisioner", "start", "--name", NAME, "--cache-dir"]).arg(cache(directory));
        command.arg("--log-human").arg(&log);
        // A session, tags or an organization from the user's environment would contradict the key.
        for name in
            [env::SESSION_TOKEN, env::ORGANIZATION, env::PROVISIONERD_TAGS, env::PROVISIONER_DAEMON_PSK]
        {
            command.env_remove(name);
        }
        command.envs(variables);
        command.env(env::URL, url).env(env::PROVISIONER_DAEMON_KEY, key.expose());
        command.env(env::CONFIG_DIR, directory.join("daemon-config")).env("NO_PROXY", "127.0.0.1");
        command.args(["--end-with-stdin", "--local-agents"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its own process group: Ctrl-C reaches only this process, which stops the daemon in order.
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().context("start the daemon's process")?;
        // Waiting for a child closes its standard input, unless it is held separately.
        let input = child.stdin.take().context("hold the daemon's input")?;
        let pid = child.id().context("the daemon's process has ended at once")?;
        Ok(Self { child, _input: input, pid, log })
    }

    /// Its process id.
    pub(super) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until the server lists it as idle.
    pub(super) async fn wait_until_joined(
        &mut self,
        client: &Client,
        organization: OrganizationId,
        printer: &Printer,
    ) -> anyhow::Result<()> {
        let listed = async {
            loop {
                let daemons = client.daemons(organization, &DaemonFilter::default()).await?;
                if daemons.iter().any(|daemon| daemon.name == NAME) {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let listed = spinner::waiting(printer, "Waiting for the daemon to join", listed);
        let outcome = tokio::select! {
            listed = listed => return listed,
            status = self.child.wait() => format!("the daemon ended with {}", status.context("wait for the daemon")?),
            () = tokio::time::sleep(JOIN_TIMEOUT) => format!("the daemon has not joined within {} s", JOIN_TIMEOUT.as_secs()),
        };
        bail!("{outcome}: {}", self.last_line())
    }

    /// Waits for the end of the process. Returns the reason.
    pub(super) async fn exited(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!("the daemon ended with {status}: {}", self.last_line()),
            Err(error) => anyhow::Error::new(error).context("wait for the daemon"),
        }
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().last().unwrap_or("its log is empty").to_owned()
    }

    /// Drains it, and kills it when it does not end in time.
    pub(super) async fn stop(mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // It may have ended just now.
            let _ = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}
