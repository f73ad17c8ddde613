//! `coder agent`: the agent of a workspace, until a signal ends it.

mod flags;
mod reaper;
pub(crate) mod session;

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coder_agent::{Agent, Config, HttpTransport, Subsystem, Transport, User, script_data_dir};
use coder_api::client::{Client, Reinit};
use coder_domain::backoff::Backoff;
use coder_domain::clock::SystemClock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use flags::Args;

use crate::context::Context;
use crate::signals::Signals;
use crate::{env, logging, runtime, versions};

/// An agent mostly waits; two threads keep one user's transfer from holding up another's keys.
const WORKER_THREADS: usize = 2;
/// Delays between two waits for the claim of a prebuilt workspace.
const FIRST_REINIT_DELAY: Duration = Duration::from_secs(1);
const LAST_REINIT_DELAY: Duration = Duration::from_secs(60);
/// How often freed memory is returned to the system.
const RELEASE_EVERY: Duration = Duration::from_secs(30);
/// The agent's log in the log directory, and its backups of 5 MB.
const LOG_FILE: &str = "coder-agent.log";
const LOG_BACKUPS: usize = 10;

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    if reaper::is_needed(&args) {
        return reaper::run(&args);
    }
    let log_dir = args.log_dir.clone().unwrap_or_else(std::env::temp_dir);
    let (log_file, problem) = writable_log(&log_dir);
    logging::install(&logging::Settings {
        human: args.log_human.clone(),
        json: args.log_json.clone(),
        stackdriver: args.log_stackdriver.clone(),
        file: log_file.clone().map(|path| (path, LOG_BACKUPS)),
        filter: Vec::new(),
        verbose: ctx.global.verbose,
    })?;
    if let Some(error) = problem {
        tracing::warn!(dir = %log_dir.display(), %error, "the agent's log cannot be written to a file");
    }
    for flag in args.unsupported.given() {
        tracing::warn!(flag, "this agent does not support a flag that was given; it has no effect");
    }
    tracing::info!(version = versions::compatible(), auth = args.auth, "starting the agent");
    let config = config(&args, log_dir, log_file)?;
    let runtime = runtime::daemon(WORKER_THREADS)?;
    runtime.block_on(async {
        let client = args.session.client()?;
        let transport = Arc::new(HttpTransport::new(client.clone()));
        let mut signals = Signals::take()?;
        // It ends with the runtime.
        tokio::spawn(release_memory());
        loop {
            let agent = Agent::new(config.clone(), Arc::clone(&transport) as Arc<dyn Transport>);
            let stop = CancellationToken::new();
            let ended = agent.run(stop.clone());
            tokio::pin!(ended);
            let starts_again = tokio::select! {
                () = &mut ended => return Ok(()),
                _ = signals.next() => false,
                () = claimed(&client) => true,
            };
            if starts_again {
                tracing::info!("the prebuilt workspace was given to a user; the agent starts again");
            } else {
                tracing::info!("the agent ends; a second signal ends it at once");
            }
            stop.cancel();
            tokio::select! {
                () = &mut ended => {}
                _ = signals.next() => {
                    tracing::warn!("ended by a signal");
                    return Ok(());
                }
            }
            if !starts_again {
                return Ok(());
            }
        }
    })
}

/// What sessions have used is of no use to the workspace's user while the agent keeps it.
async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // Walking all free memory blocks the thread for a moment.
        let _ = tokio::task::spawn_blocking(runtime::release_memory).await;
    }
}

/// Waits until the server says that a prebuilt workspace was given to a user, which only official servers do.
async fn claimed(client: &Client) {
    let mut backoff = Backoff::new(FIRST_REINIT_DELAY, LAST_REINIT_DELAY).with_jitter();
    loop {
        let start = Instant::now();
        match client.agent_reinit().await {
            Ok(Reinit::Claimed) => return,
            Ok(Reinit::Never) => return std::future::pending().await,
            Ok(Reinit::Closed) => {}
            // The connection of the calls logs what lasts.
            Err(error) => tracing::debug!(%error, "cannot wait for the claim of the workspace"),
        }
        if start.elapsed() > LAST_REINIT_DELAY {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

fn config(args: &Args, log_dir: PathBuf, log_file: Option<PathBuf>) -> anyhow::Result<Config> {
    let program = std::env::current_exe().context("find the path of this program")?;
    let user = User::current(|name| std::env::var_os(name));
    let configured = args.script_data_dir.clone().unwrap_or_else(std::env::temp_dir);
    Ok(Config {
        token: args.session.token()?,
        version: versions::compatible().trim_start_matches('v').to_owned(),
        log_dir,
        script_data_dir: script_data_dir(configured, &user.home),
        program,
        environment: std::env::vars_os().collect(),
        user,
        subsystems: env::get(env::AGENT_SUBSYSTEM).map(|text| subsystems(&text)).unwrap_or_default(),
        ssh_max_timeout: args.ssh_max_timeout,
        block_file_transfer: args.block_file_transfer,
        log_file,
        clock: Arc::new(SystemClock),
    })
}

/// The path of the log file, if it can be written. On a read-only root the agent runs without.
fn writable_log(directory: &Path) -> (Option<PathBuf>, Option<std::io::Error>) {
    let path = directory.join(LOG_FILE);
    let opened = std::fs::create_dir_all(directory)
        .and_then(|()| std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path));
    match opened {
        Ok(_) => (Some(path), None),
        Err(error) => (None, Some(error)),
    }
}

fn subsystems(text: &str) -> Vec<Subsystem> {
    let known = |name: &str| match name {
        "envbox" => Some(Subsystem::Envbox),
        "envbuilder" => Some(Subsystem::Envbuilder),
        "exectrace" => Some(Subsystem::Exectrace),
        "" => None,
        other => {
            tracing::warn!(subsystem = other, "CODER_AGENT_SUBSYSTEM names an unknown subsystem");
            None
        }
    };
    text.split(',').map(str::trim).filter_map(known).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_subsystems_are_read() {
        assert_eq!(subsystems("envbox, exectrace,other,"), [Subsystem::Envbox, Subsystem::Exectrace]);
        assert!(subsystems("").is_empty());
    }

    #[test]
    fn log_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let (path, error) = writable_log(&directory.path().join("new"));
        assert!(path.unwrap().ends_with("new/coder-agent.log") && error.is_none());
        let (path, error) = writable_log(Path::new("/proc/nothing"));
        assert!(path.is_none() && error.is_some());
    }
}
