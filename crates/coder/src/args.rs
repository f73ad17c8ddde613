//! Flags that several commands share.

use std::path::PathBuf;

use clap::Args;

use crate::env;
use crate::terminal::table::{self, Listed};

/// Flags of every command.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// URL of the server.
    #[arg(long, global = true, env = env::URL, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Session or API token. A file or the variable is safer: other users can see the command line.
    #[arg(long, global = true, env = env::SESSION_TOKEN, hide_env_values = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// Directory with the saved URL, session and organization.
    #[arg(long, global = true, env = env::CONFIG_DIR, value_name = "DIR")]
    pub(crate) global_config: Option<PathBuf>,
    /// Additional HTTP header as name=value; may be repeated.
    #[arg(long, global = true, env = env::HEADER, hide_env_values = true, value_delimiter = ',', value_name = "NAME=VALUE")]
    pub(crate) header: Vec<String>,
    /// Command that prints additional HTTP headers, one name=value a line.
    #[arg(long, global = true, env = env::HEADER_COMMAND, value_name = "COMMAND")]
    pub(crate) header_command: Option<String>,
    /// Do not warn about a server of another version.
    #[arg(long, global = true, env = env::NO_VERSION_WARNING)]
    pub(crate) no_version_warning: bool,
    /// Do not print warnings of the server.
    #[arg(long, global = true, env = env::NO_FEATURE_WARNING)]
    pub(crate) no_feature_warning: bool,
    /// Do not open a browser, print the address.
    #[arg(long, global = true, env = env::NO_OPEN)]
    pub(crate) no_open: bool,
    /// Flags that change nothing.
    #[command(flatten)]
    compatible: Compatible,
    /// Show debug messages.
    #[arg(short, long, global = true, env = env::VERBOSE)]
    pub(crate) verbose: bool,
}

/// Official flags that ask for what this program always does. People and editors pass them.
#[derive(Clone, Debug, Args)]
#[group(skip)]
struct Compatible {
    /// Connect through the relay only, as this program always does.
    #[arg(long, global = true, env = env::DISABLE_DIRECT_CONNECTIONS)]
    disable_direct_connections: bool,
    /// Send no measurements of connections; this program never does.
    #[arg(long, global = true, env = env::DISABLE_NETWORK_TELEMETRY)]
    disable_network_telemetry: bool,
    /// Accepted, but the session is always saved in a file that only you can read.
    #[arg(long, global = true, env = env::USE_KEYRING)]
    use_keyring: bool,
}

/// The organization of commands that work in one.
#[derive(Clone, Debug, Args)]
pub(crate) struct Organization {
    /// Organization to work in, by name or id; `default` is the default one.
    #[arg(short = 'O', long = "org", env = env::ORGANIZATION, value_name = "NAME")]
    pub(crate) org: Option<String>,
}

/// Arguments of a list of what an organization has.
#[derive(Debug, Args)]
pub(crate) struct List<T: Listed> {
    #[command(flatten)]
    pub(crate) organization: Organization,
    #[command(flatten)]
    pub(crate) table: table::TableOptions<T>,
}

/// The words for yes and no that Go accepts.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}
