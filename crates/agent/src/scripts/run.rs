//! One run of a script.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use coder_wire::messages::coder::agent::v2 as messages;
use messages::timing::{Stage, Status};
use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::process::Child;

use super::log_file::LogFile;
use super::output;
use crate::calls::timestamp;
use crate::log_queue::Level;
use crate::manifest::{Manifest, Script};
use crate::process::{self, Group, Setup};
use crate::state::AgentState;
use crate::{environment, expand, shell};

/// How long a script may clean up after its deadline.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// How long processes that a script left behind may hold its output open.
const PIPE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the lines of a run go: to its file and to the server.
struct Log<'a> {
    state: &'a AgentState,
    script: &'a Script,
    file: Mutex<LogFile>,
}

impl Log<'_> {
    fn line(&self, level: Level, bytes: &[u8]) {
        self.file.lock().line(bytes);
        self.state.logs.push(self.script.log_source, self.state.config.clock.now(), level, bytes);
    }
}

/// Runs a script to its end, and reports it.
pub(super) async fn run(
    state: &Arc<AgentState>,
    manifest: &Manifest,
    script: &Script,
    stage: Stage,
) -> Status {
    let config = &state.config;
    let start = config.clock.now();
    tracing::info!(script = script.name, stage = stage.as_str_name(), "running a script");
    let path =
        expand::path(&script.log_path, &config.user.home, &config.log_dir, |name| config.variable(name));
    let path = path.unwrap_or_else(|| config.log_dir.join(format!("coder-script-{}.log", script.log_source)));
    let (file, problem) = LogFile::open(&path);
    let log = Log { state, script, file: Mutex::new(file) };
    if let Some(error) = problem {
        tracing::warn!(script = script.name, path = %path.display(), %error, "the log file of a script cannot be written");
    }
    let (status, exit_code) = match execute(state, manifest, script, &log).await {
        Ok(ended) => ended,
        Err(error) => {
            log.line(Level::Error, format!("the script could not be started: {error}").as_bytes());
            (Status::ExitFailure, 255)
        }
    };
    state.logs.finish(script.log_source, config.clock.now());
    tracing::info!(
        script = script.name,
        stage = stage.as_str_name(),
        status = status.as_str_name(),
        exit_code,
        "a script ended"
    );
    let timing = messages::Timing {
        script_id: script.id.as_bytes().to_vec(),
        start: Some(timestamp(start)),
        end: Some(timestamp(config.clock.now().max(start))),
        exit_code,
        stage: stage.into(),
        status: status.into(),
    };
    if state.completed.try_send(timing).is_err() {
        tracing::warn!(script = script.name, "too many ended scripts wait to be reported; this one is not");
    }
    status
}

async fn execute(
    state: &AgentState,
    manifest: &Manifest,
    script: &Script,
    log: &Log<'_>,
) -> io::Result<(Status, i32)> {
    let config = &state.config;
    let mut environment = environment::of_command(config, manifest, &[]);
    let (data, bin) = (config.data_dir(script.log_source), config.bin_dir());
    for folder in [&data, &bin] {
        if let Err(error) = private_directory(folder) {
            // On a read-only root the script may do without.
            log.line(Level::Warn, format!("{} cannot be made: {error}", folder.display()).as_bytes());
        }
    }
    environment.insert("CODER_SCRIPT_DATA_DIR".into(), data.into());
    environment.insert("CODER_SCRIPT_BIN_DIR".into(), bin.into());
    let setup = Setup {
        invocation: shell::command(&config.user.shell, &script.text),
        environment,
        directory: state.directory(manifest),
    };
    let mut child = setup.spawn(Stdio::null(), Stdio::piped(), Stdio::piped())?;
    let group = Group::of(&child);
    let mut killer = KillOnDrop(Some(group));
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let both = async {
        let out = async {
            if let Some(stdout) = stdout {
                output::read(stdout, |line| log.line(Level::Info, line)).await;
            }
        };
        let err = async {
            if let Some(stderr) = stderr {
                output::read(stderr, |line| log.line(Level::Error, line)).await;
            }
        };
        tokio::join!(out, err);
    };
    tokio::pin!(both);
    let mut pipes_open = true;
    let ended = wait(&mut child, group, script.timeout);
    tokio::pin!(ended);
    // A script that has closed its output may go on.
    let (exit, timed_out) = loop {
        tokio::select! {
            ended = &mut ended => break ended?,
            () = &mut both, if pipes_open => pipes_open = false,
        }
    };
    let exit_code = process::exit_code(exit);
    if pipes_open && !timed_out {
        pipes_open = tokio::time::timeout(PIPE_TIMEOUT, &mut both).await.is_err();
    }
    // Processes that a script left running go on.
    killer.0 = None;
    let status = if timed_out {
        let limit = script.timeout.unwrap_or_default();
        log.line(Level::Error, format!("the script did not end within {limit:?} and was stopped").as_bytes());
        Status::TimedOut
    } else if exit_code != 0 {
        Status::ExitFailure
    } else if pipes_open {
        let text = "the script ended, but a process that it started keeps its output open; further output is not \
                    recorded. Redirect the output of processes in the background, for example with >/dev/null 2>&1";
        log.line(Level::Warn, text.as_bytes());
        Status::PipesLeftOpen
    } else {
        Status::Ok
    };
    Ok((status, exit_code))
}

/// Waits for the end; at the deadline the whole group gets SIGHUP, and SIGKILL after some time.
async fn wait(
    child: &mut Child,
    group: Group,
    timeout: Option<Duration>,
) -> io::Result<(std::process::ExitStatus, bool)> {
    let Some(timeout) = timeout else { return Ok((child.wait().await?, false)) };
    if let Ok(exit) = tokio::time::timeout(timeout, child.wait()).await {
        return Ok((exit?, false));
    }
    group.signal(Signal::HUP);
    let exit = tokio::time::timeout(END_TIMEOUT, child.wait()).await;
    // What the script started does not outlive the deadline, either.
    group.signal(Signal::KILL);
    match exit {
        Ok(exit) => Ok((exit?, true)),
        Err(_) => Ok((child.wait().await?, true)),
    }
}

/// A run that is given up, because the agent ends, takes its processes along.
struct KillOnDrop(Option<Group>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            group.signal(Signal::KILL);
        }
    }
}

fn private_directory(path: &PathBuf) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}
