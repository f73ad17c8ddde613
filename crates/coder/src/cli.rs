//! The whole command line: the list of commands, and how flags are read.

use clap::builder::Resettable;
use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

use crate::args::{Global, boolean};
use crate::{cmd, help, versions};

/// Coder: templates become workspaces, built by provisioners.
#[derive(Debug, Parser)]
#[command(name = "coder", version = versions::line(), arg_required_else_help = true, max_term_width = 110)]
pub(crate) struct Cli {
    /// Flags of every command.
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Try it: server, daemon, template and workspace on this machine.
    #[cfg(feature = "server")]
    Quickstart(cmd::quickstart::Args),
    /// Start the server.
    #[cfg(feature = "server")]
    Server(Box<cmd::server::Args>),
    /// Set a user's password on the server's database.
    #[cfg(feature = "server")]
    ResetPassword(cmd::reset_password::Args),
    /// Log in to a server; on a new one, create the first user.
    Login(cmd::login::Args),
    /// Log out and delete the saved session.
    Logout(cmd::logout::Args),
    /// Show who is logged in, and where.
    Whoami(cmd::whoami::Args),
    /// Show the public key that your workspaces use for Git.
    Publickey(cmd::publickey::Args),
    /// Run provisioner daemons; manage their keys and jobs.
    #[command(
        alias = "provisioners",
        alias = "provisionerd",
        subcommand_required = true,
        arg_required_else_help = true
    )]
    Provisioner {
        #[command(subcommand)]
        command: Box<cmd::provisioner::Command>,
    },
    /// Use the built-in Terraform provider with Terraform run by hand.
    #[cfg(feature = "server")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Provider {
        #[command(subcommand)]
        command: cmd::provider::Command,
    },
    /// Keep pools of provisioner daemons in Kubernetes.
    #[cfg(feature = "operator")]
    Operator(cmd::operator::Args),
    /// For authors of templates and for tests; these may change.
    #[cfg(feature = "server")]
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Exp {
        #[command(subcommand)]
        command: cmd::exp::Command,
    },
    /// Manage templates.
    #[command(alias = "template", subcommand_required = true, arg_required_else_help = true)]
    Templates {
        #[command(subcommand)]
        command: cmd::templates::Command,
    },
    /// Create a workspace.
    Create(cmd::create::Args),
    /// List workspaces.
    #[command(alias = "ls")]
    List(cmd::list::Args),
    /// Show a workspace's resources and agents.
    Show(cmd::show::Args),
    /// Start a workspace.
    Start(cmd::start::Args),
    /// Stop a workspace.
    Stop(cmd::stop::Args),
    /// Stop a workspace and start it again.
    Restart(cmd::restart::Args),
    /// Build a workspace with the template's active version.
    Update(cmd::update::Args),
    /// Show or change when workspaces start and stop by themselves.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Schedule {
        #[command(subcommand)]
        command: cmd::schedule::Command,
    },
    /// Choose whether each start takes the active version.
    Autoupdate(cmd::autoupdate::Args),
    /// Rename a workspace.
    Rename(cmd::rename::Args),
    /// Show a workspace first in lists.
    #[command(alias = "fav")]
    Favorite(cmd::favorite::Args),
    /// Show a workspace in its usual place in lists.
    #[command(alias = "unfav")]
    Unfavorite(cmd::favorite::Args),
    /// Delete a workspace.
    #[command(alias = "rm")]
    Delete(cmd::delete::Args),
    /// Show the logs of a workspace's build and agents.
    Logs(cmd::logs::Args),
    /// Start a shell in a workspace, or run a command there.
    Ssh(Box<cmd::ssh::Args>),
    /// Add the workspaces to the configuration of OpenSSH.
    ConfigSsh(cmd::config_ssh::Args),
    /// Make ports of a workspace reachable on this machine.
    #[command(alias = "tunnel")]
    PortForward(cmd::port_forward::Args),
    /// Ping a workspace's agent.
    Ping(cmd::ping::Args),
    /// Measure the throughput to a workspace.
    Speedtest(cmd::speedtest::Args),
    /// Check whether the server's relays can be reached.
    Netcheck(cmd::netcheck::Args),
    /// Open a workspace in VS Code, or one of its apps.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Open {
        #[command(subcommand)]
        command: cmd::open::Command,
    },
    /// What the configuration of OpenSSH asks for.
    #[command(hide = true, subcommand_required = true, arg_required_else_help = true)]
    Connect {
        #[command(subcommand)]
        command: cmd::connect::Command,
    },
    /// Read or replace a workspace's Terraform state.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    State {
        #[command(subcommand)]
        command: cmd::state::Command,
    },
    /// Manage API tokens.
    #[command(alias = "token", subcommand_required = true, arg_required_else_help = true)]
    Tokens {
        #[command(subcommand)]
        command: cmd::tokens::Command,
    },
    /// Manage users.
    #[command(alias = "user", subcommand_required = true, arg_required_else_help = true)]
    Users {
        #[command(subcommand)]
        command: cmd::users::Command,
    },
    /// Manage organizations and their members.
    #[command(aliases = ["organization", "orgs", "org"], subcommand_required = true, arg_required_else_help = true)]
    Organizations {
        #[command(subcommand)]
        command: cmd::organizations::Command,
    },
    /// Print an access token of an external service, in a workspace.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    ExternalAuth {
        #[command(subcommand)]
        command: cmd::external_auth::Command,
    },
    /// Install your dotfiles from a Git repository.
    Dotfiles(cmd::dotfiles::Args),
    /// Show the use of processors, memory and disk.
    Stat(cmd::stat::Args),
    /// Run the agent of a workspace; its init script does this.
    #[command(hide = true)]
    Agent(Box<cmd::agent::Args>),
    /// Run SSH for Git with the key of the workspace's owner; Git does this.
    #[command(hide = true)]
    Gitssh(cmd::gitssh::Args),
    /// Print the version.
    Version(cmd::version::Args),
    /// Print a script for completion in a shell.
    Completion(cmd::completion::Args),
    /// Print or write manual pages.
    Man(cmd::man::Args),
}

/// The whole command line, with help texts.
#[must_use]
pub fn command() -> clap::Command {
    help::decorate(parser())
}

/// The command line without the texts that only help needs. It accepts the same arguments as [`command`].
pub(crate) fn parser() -> clap::Command {
    official_habits(Cli::command())
}

/// Adapts clap to the official program: switches take `=true` or `=false`, also from variables, and an empty variable
/// counts as absent.
fn official_habits(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| {
        let absent =
            arg.get_env().is_some_and(|name| std::env::var_os(name).is_some_and(|value| value.is_empty()));
        // Help is the same everywhere and shows no values, some of which are secret.
        let arg = if absent { arg.env(Resettable::Reset) } else { arg.hide_env_values(true) };
        if !matches!(arg.get_action(), ArgAction::SetTrue) {
            return arg;
        }
        arg.action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true)
            .value_name("BOOL")
            .value_parser(boolean)
    });
    command.mut_subcommands(official_habits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
