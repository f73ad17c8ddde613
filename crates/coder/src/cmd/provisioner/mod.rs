//! `coder provisioner …`: keys, daemons and their jobs.

pub(crate) mod drain;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod list;
#[cfg(feature = "server")]
pub(crate) mod start;

use crate::context::Context;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Run a daemon that builds workspaces.
    #[cfg(feature = "server")]
    Start(Box<start::Args>),
    /// List daemons.
    #[command(alias = "ls")]
    List(list::Args),
    /// Let a daemon finish its jobs and then disconnect.
    Drain(drain::Args),
    /// End a drain: the daemon gets jobs again.
    Undrain(drain::Args),
    /// Manage the keys with which daemons join.
    #[command(alias = "key", subcommand_required = true, arg_required_else_help = true)]
    Keys {
        #[command(subcommand)]
        command: keys::Command,
    },
    /// List and cancel jobs.
    #[command(alias = "job", subcommand_required = true, arg_required_else_help = true)]
    Jobs {
        #[command(subcommand)]
        command: jobs::Command,
    },
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        #[cfg(feature = "server")]
        Command::Start(_) => unreachable!("has its own runtime, see lib.rs"),
        Command::List(args) => list::run(ctx, args).await,
        Command::Drain(args) => drain::drain(ctx, args).await,
        Command::Undrain(args) => drain::undrain(ctx, args).await,
        Command::Keys { command } => keys::run(ctx, command).await,
        Command::Jobs { command } => jobs::run(ctx, command).await,
    }
}
