//! `coder ssh`: a shell or a command in a workspace, or its SSH port on standard input and output (agent 7.3).

mod forward;
mod gpg;
mod network_info;
mod session;
mod stdio;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use coder_api::agents::WorkspaceUsage;
use coder_api::builds::{Transition, WorkspaceStatus};
use coder_api::client::Client;
use coder_api::workspaces::Workspace;
use coder_domain::ids::AgentId;
use tokio::time::{MissedTickBehavior, interval, interval_at};

use self::forward::RemoteForward;
use crate::context::Context;
use crate::network::OwnNode;
use crate::network::target::{self, Name, Preparation, Wait};
use crate::{duration, env, logging, remote};

/// The port of the agent's SSH server.
const SSH_PORT: u16 = 1;
/// How often the use of the workspace is reported.
const USAGE_INTERVAL: Duration = Duration::from_secs(60);
/// How many full log files of one connection are kept beside the newest.
const LOG_BACKUPS: usize = 1;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name, owner/name or name.agent.
    workspace: String,
    /// Command to run instead of a shell.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
    /// Carry the workspace's SSH port over standard input and output, for OpenSSH's ProxyCommand.
    #[arg(long, env = env::SSH_STDIO)]
    stdio: bool,
    /// Prefix of the host name that is taken off, as `coder config-ssh` writes it.
    #[arg(long, env = env::SSH_SSH_HOST_PREFIX, value_name = "PREFIX")]
    ssh_host_prefix: Option<String>,
    /// Suffix of the host name that is taken off, without its dot.
    #[arg(long, env = env::SSH_HOSTNAME_SUFFIX, value_name = "SUFFIX")]
    hostname_suffix: Option<String>,
    /// Let the workspace use the SSH agent of this machine.
    #[arg(short = 'A', long, env = env::SSH_FORWARD_AGENT)]
    forward_agent: bool,
    /// Let the workspace use the keys of the GnuPG agent of this machine; gpg and gpgconf must be on both.
    #[arg(short = 'G', long, env = env::SSH_FORWARD_GPG)]
    forward_gpg: bool,
    /// Socket of the SSH agent to use instead of SSH_AUTH_SOCK.
    #[arg(long, env = env::SSH_IDENTITY_AGENT, value_name = "SOCKET")]
    identity_agent: Option<PathBuf>,
    /// How often to look whether the workspace was stopped.
    #[arg(long, env = env::WORKSPACE_POLL_INTERVAL, default_value = "1m", value_parser = duration::parse, value_name = "DURATION")]
    workspace_poll_interval: Duration,
    /// Whether to wait for the startup scripts.
    #[arg(long, env = env::SSH_WAIT, value_enum, default_value = "auto", value_name = "WHEN")]
    wait: Wait,
    /// Older form of --wait=no.
    #[arg(long, env = env::SSH_NO_WAIT, hide = true)]
    no_wait: bool,
    /// Make a port or socket of the workspace lead to this machine: port:address:port or socket:socket; may be repeated.
    #[arg(short = 'R', long, env = env::SSH_REMOTE_FORWARD, value_delimiter = ',', value_name = "FORWARD")]
    remote_forward: Vec<RemoteForward>,
    /// Variable of the remote command as name=value; may be repeated.
    #[arg(short, long, env = env::SSH_ENV, value_delimiter = ',', value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// Directory for a file about the connection, which editors read.
    #[arg(long, env = env::SSH_NETWORK_INFO_DIR, value_name = "DIR")]
    network_info_dir: Option<PathBuf>,
    /// How often to write that file.
    #[arg(long, env = env::SSH_NETWORK_INFO_INTERVAL, default_value = "5s", value_parser = duration::parse, value_name = "DURATION")]
    network_info_interval: Duration,
    /// Directory for a file with the debug log of this connection.
    #[arg(short, long, env = env::SSH_LOG_DIR, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Do not start a stopped workspace.
    #[arg(long, env = env::SSH_DISABLE_AUTOSTART)]
    disable_autostart: bool,
    /// What the use of the workspace is reported as: ssh, vscode, jetbrains or disable.
    #[arg(long, env = env::SSH_USAGE_APP, hide = true, default_value = "ssh", value_name = "APP")]
    usage_app: UsageApp,
    /// Make a connection of its own, as this program always does.
    #[arg(long, hide = true)]
    force_new_tunnel: bool,
}

/// `--usage-app`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum UsageApp {
    Ssh,
    Vscode,
    Jetbrains,
    Disable,
}

impl UsageApp {
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Ssh => Some("ssh"),
            Self::Vscode => Some("vscode"),
            Self::Jetbrains => Some("jetbrains"),
            Self::Disable => None,
        }
    }
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    if args.stdio && !args.remote_forward.is_empty() {
        bail!("--remote-forward does not work with --stdio: use -R of your SSH client");
    }
    if args.stdio && args.forward_gpg {
        bail!("--forward-gpg does not work with --stdio: use RemoteForward of your SSH client");
    }
    let variables = variables(&args.env)?;
    if let Some(directory) = &args.log_dir {
        write_log(directory)?;
    }
    let gpg_agent = if args.forward_gpg { Some(gpg::LocalAgent::find().await?) } else { None };
    let client = remote::connect(ctx)?;
    let name =
        Name::parse_host(&args.workspace, args.ssh_host_prefix.as_deref(), args.hostname_suffix.as_deref())?;
    let wait = if args.no_wait { Wait::No } else { args.wait };
    let how = Preparation { disable_autostart: args.disable_autostart, wait };
    // The coordinator's connection and the relay's are opened while it is not known yet what to ask them for.
    client.preconnect(2);
    // Both take several round trips, and need nothing of each other.
    let node = async { OwnNode::start(&client, &client.agents_connection().await?) };
    let (node, (workspace, agent)) = tokio::try_join!(node, target::prepare(ctx, &client, &name, how))?;
    let connection = node.reach(agent.id);
    let mut stream = connection.connect_first(SSH_PORT).await?;
    let mut forwards = args.remote_forward.clone();
    if let Some(agent) = gpg_agent {
        forwards.push(agent.prepare(stream).await?);
        stream = connection.connect(SSH_PORT).await?;
    }
    let work = async {
        if args.stdio {
            return stdio::copy(stream).await;
        }
        let options = session::SessionOptions {
            command: (!args.command.is_empty()).then(|| args.command.join(" ")),
            variables,
            forwards,
            agent_socket: if args.forward_agent { Some(agent_socket(&args)?) } else { None },
        };
        session::run(&ctx.printer, stream, options).await
    };
    let result = tokio::select! {
        result = work => result,
        refusal = connection.refused() => Err(refusal),
        ended = watch(&client, &workspace, args.workspace_poll_interval) => Err(ended),
        () = report_usage(&client, &workspace, agent.id, args.usage_app) => unreachable!("reports never end"),
        error = network_info::write(&connection, args.network_info_dir.as_deref(), args.network_info_interval) => Err(error),
    };
    connection.close().await;
    result
}

/// Writes the debug log into a file of its own. Editors find it by the process id in its name.
#[expect(clippy::disallowed_methods, reason = "people read it; nothing is decided by it")]
fn write_log(directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    let time = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S");
    let path = directory.join(format!("coder-ssh-{time}-{}.log", std::process::id()));
    let settings =
        logging::Settings { file: Some((path, LOG_BACKUPS)), verbose: true, ..logging::Settings::default() };
    Ok(logging::install(&settings)?)
}

fn agent_socket(args: &Args) -> anyhow::Result<PathBuf> {
    let socket = args.identity_agent.clone().or_else(|| env::get(env::SSH_AUTH_SOCK).map(PathBuf::from));
    socket.context("--forward-agent needs an SSH agent: start one, or name its socket with --identity-agent")
}

fn variables(lines: &[String]) -> anyhow::Result<Vec<(String, String)>> {
    let split = |line: &String| match line.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        // The value may be a secret, so the line is not shown.
        _ => bail!("a value of --env is not of the form name=value"),
    };
    lines.iter().map(split).collect()
}

/// Waits until the workspace is stopped or built anew.
async fn watch(client: &Client, workspace: &Workspace, period: Duration) -> anyhow::Error {
    let name = &workspace.name;
    let period = period.max(Duration::from_secs(1));
    let mut ticks = interval_at(tokio::time::Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match client.workspace(workspace.id).await {
            Ok(now) => {
                let is_newer = now.latest_build.build_number > workspace.latest_build.build_number;
                if is_newer && now.latest_build.transition == Transition::Start {
                    return anyhow::anyhow!("workspace {name:?} was started anew: connect again");
                }
                if now.latest_build.status != WorkspaceStatus::Running && is_newer {
                    let status = now.latest_build.status.as_str();
                    return anyhow::anyhow!("workspace {name:?} is {status}");
                }
            }
            Err(error) if error.is_not_found() || error.status().is_some_and(|status| status == 410) => {
                return anyhow::anyhow!("workspace {name:?} was deleted");
            }
            // The session goes on as long as its connection does.
            Err(error) => tracing::debug!(%error, "cannot look at the workspace"),
        }
    }
}

/// Reports the use of the workspace, so that it is not stopped meanwhile.
async fn report_usage(client: &Client, workspace: &Workspace, agent: AgentId, app: UsageApp) {
    let Some(app_name) = app.name() else { return std::future::pending().await };
    let usage = WorkspaceUsage { agent_id: Some(agent), app_name: app_name.to_owned() };
    let mut ticks = interval(USAGE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = client.report_usage(workspace.id, &usage).await {
            tracing::debug!(%error, "cannot report the use of the workspace");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_have_a_name() {
        let lines = |line: &str| variables(&[line.to_owned()]);
        assert_eq!(lines("A=b=c").unwrap(), [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(lines("A=").unwrap(), [("A".to_owned(), String::new())]);
        for line in ["=x", "hunter2"] {
            let error = lines(line).unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
