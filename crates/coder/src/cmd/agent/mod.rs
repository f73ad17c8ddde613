//! `coder agent`: the agent of a workspace, until a signal ends it.

mod flags;
mod reaper;
pub(crate) mod session;

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use coder_agent::{Agent, Config, HttpTransport, Subsystem, Transport, User, append_file, script_data_dir};
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
const MAX_REINIT_DELAY: Duration = Duration::from_secs(60);
/// How often freed memory is returned to the system.
const RELEASE_EVERY: Duration = Duration::from_secs(30);
/// The agent's log in the log directory, and its backups of 5 MB.
const LOG_FILE: &str = "coder-agent.log";
const LOG_BACKUPS: usize = 10;
/// In the place of a log directory that cannot be used, below the home of the user.
const LOGS_IN_HOME: &str = ".cache";

pub(crate) fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    if reaper::is_needed(&args) {
        return reaper::run(&args);
    }
    let user = User::current(|name| std::env::var_os(name));
    let wanted = args.log_dir.clone().unwrap_or_else(std::env::temp_dir);
    let (log_file, problem) = writable_log(&wanted, &user.home.join(LOGS_IN_HOME));
    let log_dir = log_file.as_deref().and_then(Path::parent).unwrap_or(&wanted).to_owned();
    logging::install(&logging::Settings {
        human: args.log_human.clone(),
        json: args.log_json.clone(),
        stackdriver: args.log_stackdriver.clone(),
        file: log_file.clone().map(|path| (path, LOG_BACKUPS)),
        filter: Vec::new(),
        verbose: ctx.global.verbose,
    })?;
    if let Some(error) = problem {
        let chosen = log_file.as_deref().map(|path| tracing::field::display(path.display()));
        tracing::warn!(dir = %wanted.display(), chosen, %error, "the agent's log cannot be written there: set CODER_AGENT_LOG_DIR");
    }
    for flag in args.unsupported.given() {
        tracing::warn!(flag, "this agent does not support a flag that was given; it has no effect");
    }
    tracing::info!(version = versions::compatible(), auth = args.auth, "starting the agent");
    let config = config(&args, user, log_dir, log_file)?;
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

/// Returns memory that ended sessions used to the system, so that the workspace's programs can use it.
async fn release_memory() {
    loop {
        tokio::time::sleep(RELEASE_EVERY).await;
        // Walking all free memory blocks the thread for a moment.
        let _ = tokio::task::spawn_blocking(runtime::release_memory).await;
    }
}

/// Waits until the server says that a prebuilt workspace was given to a user, which only official servers do.
async fn claimed(client: &Client) {
    let mut backoff = Backoff::new(FIRST_REINIT_DELAY, MAX_REINIT_DELAY).with_jitter();
    loop {
        let start = Instant::now();
        match client.agent_reinit().await {
            Ok(Reinit::Claimed) => return,
            Ok(Reinit::Never) => return std::future::pending().await,
            Ok(Reinit::Closed) => {}
            // The connection of the calls logs what lasts.
            Err(error) => tracing::debug!(%error, "cannot wait for the claim of the workspace"),
        }
        if start.elapsed() > MAX_REINIT_DELAY {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}

fn config(args: &Args, user: User, log_dir: PathBuf, log_file: Option<PathBuf>) -> anyhow::Result<Config> {
    let program = std::env::current_exe().context("find the path of this program")?;
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

/// The path of the log file in the first directory, or else in the second one, and why the first one is not used. On a read-only root the
/// agent runs without.
fn writable_log(first: &Path, second: &Path) -> (Option<PathBuf>, Option<std::io::Error>) {
    match open_log(first) {
        Ok(path) => (Some(path), None),
        Err(error) => (open_log(second).ok(), Some(error)),
    }
}

fn open_log(directory: &Path) -> std::io::Result<PathBuf> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(LOG_FILE);
    append_file(&path)?;
    Ok(path)
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
        let nowhere = Path::new("/proc/nothing");
        let (path, error) = writable_log(&directory.path().join("new"), nowhere);
        assert!(path.unwrap().ends_with("new/coder-agent.log") && error.is_none());
        let (path, error) = writable_log(nowhere, nowhere);
        assert!(path.is_none() && error.is_some());
    }

    #[test]
    fn log_that_another_user_may_have_made_is_not_written() {
        let directory = tempfile::tempdir().unwrap();
        let [shared, home, target] = ["shared", "home", "target"].map(|name| directory.path().join(name));
        std::fs::create_dir(&shared).unwrap();
        std::fs::set_permissions(&shared, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).unwrap();
        std::os::unix::fs::symlink(&target, shared.join(LOG_FILE)).unwrap();
        let (path, error) = writable_log(&shared, &home);
        assert_eq!(path.unwrap(), home.join(LOG_FILE));
        assert!(error.is_some() && !target.exists());
    }
}
