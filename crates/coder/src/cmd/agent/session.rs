//! How commands inside a workspace reach the server: with the agent's token.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use coder_api::client::{Client, Options};
use coder_domain::secret::Secret;

use crate::context;
use crate::{env, versions};

/// Longest token file in bytes.
const TOKEN_FILE: u64 = 64 << 10;

/// Flags of every command that uses the agent's token.
#[derive(Clone, clap::Args)]
pub(crate) struct AgentSession {
    /// Token of the agent. The variable or a file is safer: other users can see the command line.
    #[arg(long, env = env::AGENT_TOKEN, hide_env_values = true, value_name = "TOKEN")]
    pub(crate) agent_token: Option<String>,
    /// File with the token of the agent.
    #[arg(long, env = env::AGENT_TOKEN_FILE, value_name = "FILE")]
    pub(crate) agent_token_file: Option<PathBuf>,
    /// URL of the server.
    #[arg(long, env = env::AGENT_URL, value_name = "URL")]
    pub(crate) agent_url: Option<String>,
    /// Additional HTTP header as name=value; may be repeated.
    #[arg(long, env = env::AGENT_HEADER, hide_env_values = true, value_delimiter = ',', value_name = "NAME=VALUE")]
    pub(crate) agent_header: Vec<String>,
    /// Command that prints additional HTTP headers, one name=value a line.
    #[arg(long, env = env::AGENT_HEADER_COMMAND, value_name = "COMMAND")]
    pub(crate) agent_header_command: Option<String>,
}

impl AgentSession {
    /// The flags as the environment has them, for commands that Git starts without flags.
    pub(crate) fn of_environment() -> Self {
        Self {
            agent_token: env::get(env::AGENT_TOKEN),
            agent_token_file: env::get(env::AGENT_TOKEN_FILE).map(PathBuf::from),
            agent_url: env::get(env::AGENT_URL),
            agent_header: env::get(env::AGENT_HEADER)
                .map(|headers| headers.split(',').map(str::to_owned).collect())
                .unwrap_or_default(),
            agent_header_command: env::get(env::AGENT_HEADER_COMMAND),
        }
    }

    /// The token.
    pub(crate) fn token(&self) -> anyhow::Result<Secret> {
        if let Some(token) = &self.agent_token {
            return Ok(Secret::new(token.trim()));
        }
        let Some(path) = &self.agent_token_file else {
            bail!(
                "this command needs an agent token: it runs inside a workspace, where CODER_AGENT_TOKEN or \
                 CODER_AGENT_TOKEN_FILE is set"
            )
        };
        let reading = || -> std::io::Result<String> {
            use std::io::Read as _;
            let mut text = String::new();
            std::fs::File::open(path)?.take(TOKEN_FILE).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = reading().with_context(|| format!("read the agent token from {}", path.display()))?;
        Ok(Secret::new(text.trim()))
    }

    /// The server with the agent's token.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        let url = self.agent_url.as_deref().context("the server's URL is missing: set CODER_AGENT_URL")?;
        let url = context::server_url(url)?;
        let headers = context::header_pairs(&self.agent_header, self.agent_header_command.as_deref())?;
        let headers = headers.into_iter().map(|(name, value)| (name, Secret::new(value))).collect();
        let user_agent = format!(
            "coder-agent/{} ({}/{}; coder)",
            versions::compatible(),
            std::env::consts::OS,
            std::env::consts::ARCH
        );
        let options = Options { user_agent, headers, ..Options::default() };
        Ok(Client::new(url.as_str(), Some(self.token()?), options)?)
    }
}

impl std::fmt::Debug for AgentSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AgentSession").field("agent_url", &self.agent_url).finish_non_exhaustive()
    }
}
