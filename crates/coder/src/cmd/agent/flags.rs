//! The flags of `coder agent` (agent 1.4).

use std::path::PathBuf;
use std::time::Duration;

use crate::cmd::agent::session::AgentSession;
use crate::{duration, env};

/// The only way in which an agent proves itself.
const TOKEN: &str = "token";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) session: AgentSession,
    /// How the agent proves itself. Identities of cloud instances are not supported.
    #[arg(long, env = env::AGENT_AUTH, default_value = TOKEN, value_name = "TYPE", value_parser = auth)]
    pub(crate) auth: String,
    /// Directory for logs; default the directory for temporary files.
    #[arg(long, env = env::AGENT_LOG_DIR, value_name = "DIR")]
    pub(crate) log_dir: Option<PathBuf>,
    /// Directory in which scripts have directories of their own; default the directory for temporary files.
    #[arg(long, env = env::AGENT_SCRIPT_DATA_DIR, value_name = "DIR")]
    pub(crate) script_data_dir: Option<PathBuf>,
    /// As process 1: do not stay behind to reap the children of others.
    #[arg(long)]
    pub(crate) no_reap: bool,
    /// End when the standard input is closed, and leave no process behind: a daemon starts agents of this machine so.
    #[arg(long, hide = true)]
    pub(crate) end_with_stdin: bool,
    /// How long an SSH connection may be silent.
    #[arg(long, env = env::AGENT_SSH_MAX_TIMEOUT, default_value = "72h", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) ssh_max_timeout: Duration,
    /// Do not transfer files over SSH.
    #[arg(long, env = env::AGENT_BLOCK_FILE_TRANSFER)]
    pub(crate) block_file_transfer: bool,
    /// File for the human-readable log; empty turns it off. The file coder-agent.log in the log directory is always written.
    #[arg(long, env = env::AGENT_LOGGING_HUMAN, default_value = "/dev/stderr", value_name = "FILE")]
    pub(crate) log_human: String,
    /// File for the log as JSON lines.
    #[arg(long, env = env::AGENT_LOGGING_JSON, default_value = "", value_name = "FILE")]
    pub(crate) log_json: String,
    /// File for the log as Stackdriver JSON lines.
    #[arg(long, env = env::AGENT_LOGGING_STACKDRIVER, default_value = "", value_name = "FILE")]
    pub(crate) log_stackdriver: String,
    #[command(flatten)]
    pub(crate) unsupported: Unsupported,
}

/// The value of `--auth`. It comes from the template, by way of the bootstrap script.
fn auth(text: &str) -> Result<String, &'static str> {
    if text == TOKEN {
        return Ok(text.to_owned());
    }
    Err(
        "only agents with a token are supported: set auth = \"token\" on the coder_agent resource, and give the machine CODER_AGENT_TOKEN",
    )
}

/// Flags of official agents without effect here. Images set them, so the agent starts with them; the log names those that were given.
#[derive(Debug, clap::Args)]
pub(crate) struct Unsupported {
    /// Not supported: all connections go through relays.
    #[arg(long, hide = true, env = env::AGENT_TAILNET_LISTEN_PORT, value_name = "PORT")]
    tailnet_listen_port: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_PPROF_ADDRESS, value_name = "HOST:PORT")]
    pprof_address: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_PROMETHEUS_ADDRESS, value_name = "HOST:PORT")]
    prometheus_address: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_DEBUG_ADDRESS, value_name = "HOST:PORT")]
    debug_address: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_DEVCONTAINERS_ENABLE, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL")]
    devcontainers_enable: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_SOCKET_SERVER_ENABLED, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_name = "BOOL")]
    socket_server_enabled: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_SOCKET_PATH, value_name = "FILE")]
    socket_path: Option<String>,
    /// Not supported.
    #[arg(long, hide = true, env = env::AGENT_BOUNDARY_LOG_PROXY_SOCKET_PATH, value_name = "FILE")]
    boundary_log_proxy_socket_path: Option<String>,
}

impl Unsupported {
    /// Those that ask for something.
    pub(crate) fn given(&self) -> Vec<&'static str> {
        let asks = |value: &Option<String>| {
            value
                .as_deref()
                .is_some_and(|value| !matches!(value, "" | "0" | "f" | "F" | "false" | "FALSE" | "False"))
        };
        let all = [
            ("tailnet-listen-port", &self.tailnet_listen_port),
            ("pprof-address", &self.pprof_address),
            ("prometheus-address", &self.prometheus_address),
            ("debug-address", &self.debug_address),
            ("devcontainers-enable", &self.devcontainers_enable),
            ("socket-server-enabled", &self.socket_server_enabled),
            ("socket-path", &self.socket_path),
            ("boundary-log-proxy-socket-path", &self.boundary_log_proxy_socket_path),
        ];
        all.into_iter().filter(|(_, value)| asks(value)).map(|(name, _)| name).collect()
    }
}
