//! Agents that run as processes of this machine and outlive the job that started them (`coder_local_agent`, docs/isolation.md).
//!
//! The processes are children of the daemon, not of a job, in a sandbox like that of a job: its own home, no files of daemons, and
//! where possible no process but its own. Each holds the read end of a pipe as standard input and ends when that is closed: when it
//! is stopped, and when the daemon ends for whatever reason.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_tfprovider::{BoxedFuture, LocalAgent};
use parking_lot::Mutex;
use tokio::process::{ChildStdin, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::files::cache_dir::private_dirs;
use crate::isolation::{self, IsolationLevel, JobCgroups, JobHome, Process, SandboxConfig};
use crate::job::orphans;
use crate::terraform::command::environment::Environment;

/// How long a stopped agent may take: its shutdown scripts run, and its last logs are sent. The agent itself gives up a little earlier.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// Delays before an agent that ended by itself is started again, and the running time after which they begin anew.
const FIRST_RESTART_DELAY: Duration = Duration::from_secs(1);
const MAX_RESTART_DELAY: Duration = Duration::from_secs(30);
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// What an agent inherits from the daemon. The daemon's credentials for clouds are not for the users of a workspace.
const INHERITED: [&str; 7] = ["PATH", "TMPDIR", "USER", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];

type Key = (Uuid, Uuid);

/// The agents of one daemon. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LocalAgents {
    shared: Arc<Shared>,
}

struct Shared {
    /// The program with the command `agent`.
    program: PathBuf,
    /// One directory for each workspace, by its id.
    dir: PathBuf,
    variables: Vec<(OsString, OsString)>,
    sandbox_config: SandboxConfig,
    running: Mutex<HashMap<Key, Running>>,
}

/// An agent that was started, and its task.
struct Running {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// A process of an agent.
struct AgentProcess {
    process: Process,
    /// Closing it ends the agent in order.
    input: Option<ChildStdin>,
    root: PathBuf,
    /// Its processes may outlive it, because they are in no PID namespace of their own.
    may_leave_orphans: bool,
}

impl LocalAgents {
    pub(crate) fn new(
        program: PathBuf,
        dir: PathBuf,
        environment: &Environment,
        mut sandbox_config: SandboxConfig,
    ) -> Self {
        sandbox_config.programs.push(program.clone());
        let is_inherited = |name: &OsStr| {
            INHERITED.iter().any(|known| name == *known) || name.as_encoded_bytes().starts_with(b"LC_")
        };
        let mut variables: Vec<_> =
            environment.variables().filter(|(name, _)| is_inherited(name)).cloned().collect();
        // Scripts of a template that call `coder` mean this program.
        for (_, path) in variables.iter_mut().filter(|(name, _)| name == "PATH") {
            let dirs = program.parent().map(Path::to_owned).into_iter();
            if let Ok(joined) = std::env::join_paths(dirs.chain(std::env::split_paths(path))) {
                *path = joined;
            }
        }
        let shared = Shared { program, dir, variables, sandbox_config, running: Mutex::default() };
        Self { shared: Arc::new(shared) }
    }

    /// Ends processes of a daemon that was killed. Blocks.
    pub(crate) fn end_orphans(&self) {
        for entry in self.shared.dir.read_dir().into_iter().flatten().flatten() {
            orphans::kill_all(&entry.path());
        }
    }

    /// Removes the files of a deleted workspace.
    pub(crate) async fn remove_files(&self, workspace: Uuid) {
        let root = self.shared.root(workspace);
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(root)).await;
        match removed {
            Ok(Err(error)) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(target: "provisioner", workspace_id = %workspace, %error, "the files of a deleted workspace cannot be removed");
            }
            _ => {}
        }
    }

    /// Stops all agents.
    pub(crate) async fn stop_all(&self) {
        let running: Vec<_> = self.shared.running.lock().drain().map(|(_, running)| running).collect();
        running.iter().for_each(|running| running.stop.cancel());
        for running in running {
            finished(running.task).await;
        }
    }
}

impl coder_tfprovider::LocalAgents for LocalAgents {
    fn start(&self, agent: LocalAgent) -> BoxedFuture<'_, Result<(), String>> {
        Box::pin(async move {
            let key = (agent.workspace, agent.id);
            let root = self.shared.root(agent.workspace);
            let process = self
                .shared
                .spawn(&agent, &root)
                .await
                .map_err(|error| format!("start {} agent: {error}", self.shared.program.display()))?;
            tracing::info!(target: "provisioner", workspace_id = %agent.workspace, "started an agent on this machine");
            let stop = CancellationToken::new();
            let task = tokio::spawn(keep_running(self.shared.clone(), agent, process, stop.clone()));
            let replaced = self.shared.running.lock().insert(key, Running { stop, task });
            if let Some(replaced) = replaced {
                replaced.stop.cancel();
                finished(replaced.task).await;
            }
            Ok(())
        })
    }

    fn is_running(&self, workspace: Uuid, agent: Uuid) -> bool {
        self.shared.running.lock().contains_key(&(workspace, agent))
    }

    fn stop(&self, workspace: Uuid, agent: Uuid) -> BoxedFuture<'_, ()> {
        Box::pin(async move {
            let running = self.shared.running.lock().remove(&(workspace, agent));
            if let Some(running) = running {
                running.stop.cancel();
                finished(running.task).await;
            }
        })
    }
}

impl Shared {
    fn root(&self, workspace: Uuid) -> PathBuf {
        self.dir.join(workspace.to_string())
    }

    /// Starts the process of an agent in the directory of its workspace.
    async fn spawn(&self, agent: &LocalAgent, root: &Path) -> io::Result<AgentProcess> {
        let made = root.to_owned();
        let making = tokio::task::spawn_blocking(move || {
            JobHome::create_kept(&made)?;
            private_dirs(&made.join("log"))?;
            private_dirs(&made.join("scripts"))
        });
        making.await.map_err(io::Error::other)??;
        let home = self.sandbox_config.home.path_for_job(root);
        let mut command = Command::new(&self.program);
        command.args(["agent", "--end-with-stdin", "--log-human", ""]);
        command.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("HOME", &home).env(orphans::JOB_VARIABLE, root);
        command.env("CODER_AGENT_URL", &agent.url).env("CODER_AGENT_TOKEN", agent.token.expose());
        command.env("CODER_AGENT_LOG_DIR", root.join("log"));
        command.env("CODER_AGENT_SCRIPT_DATA_DIR", root.join("scripts"));
        command.current_dir(&home).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // A workspace lives longer than a job, so it is not in the control groups of one.
        let groups = JobCgroups::default();
        let mut process = isolation::spawn(&mut command, Some(self.sandbox_config.for_job(root, &groups)))?;
        let input = process.take_stdin();
        let may_leave_orphans = self.sandbox_config.support.level != IsolationLevel::Full;
        Ok(AgentProcess { process, input, root: root.to_owned(), may_leave_orphans })
    }
}

impl AgentProcess {
    /// Ends the agent in order, and kills it when that takes too long.
    async fn stop(mut self) {
        drop(self.input.take());
        if tokio::time::timeout(STOP_TIMEOUT, self.process.wait()).await.is_err() {
            self.process.signals().kill();
            // It was killed, so it ends at once.
            let _ = self.process.wait().await;
        }
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.process.signals().kill();
        if self.may_leave_orphans {
            orphans::kill_all(&self.root);
        }
    }
}

/// Waits for a process until it is stopped, and starts it again when it ends by itself.
async fn keep_running(
    shared: Arc<Shared>,
    agent: LocalAgent,
    mut process: AgentProcess,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new(FIRST_RESTART_DELAY, MAX_RESTART_DELAY);
    let root = process.root.clone();
    loop {
        let started = Instant::now();
        let ended = tokio::select! {
            ended = process.process.wait() => ended,
            () = stop.cancelled() => return process.stop().await,
        };
        drop(process);
        if started.elapsed() > STABLE_AFTER {
            backoff.reset();
        }
        let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        tracing::warn!(target: "provisioner", workspace_id = %agent.workspace, %status, "an agent on this machine ended; it is started again");
        process = loop {
            tokio::select! {
                () = tokio::time::sleep(backoff.next_delay()) => {}
                () = stop.cancelled() => return,
            }
            match shared.spawn(&agent, &root).await {
                Ok(process) => break process,
                Err(error) => {
                    tracing::warn!(target: "provisioner", workspace_id = %agent.workspace, %error, "an agent on this machine cannot be started; it is tried again");
                }
            }
        };
    }
}

async fn finished(task: JoinHandle<()>) {
    if let Err(error) = task.await {
        tracing::error!(target: "provisioner", %error, "the task of an agent on this machine failed");
    }
}
