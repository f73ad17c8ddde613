//! The commands for templates: `coder templates …`.

mod archive;
#[cfg(feature = "server")]
mod bundle;
mod create;
mod delete;
mod edit;
mod import;
mod init;
mod list;
mod presets;
mod pull;
pub(crate) mod push;
mod schedule_flags;
mod versions;

use crate::context::Context;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Write an example template into a directory.
    Init(init::Args),
    /// Create a template, or a new version of one, from a directory.
    Push(push::Args),
    /// Pack a template with its modules and providers into one file, for daemons without a network.
    #[cfg(feature = "server")]
    Bundle(bundle::Args),
    /// Older name of push, for templates that do not exist yet.
    #[command(hide = true)]
    Create(create::Args),
    /// Download the source of a template.
    Pull(pull::Args),
    /// Change the name, description and settings of a template.
    Edit(edit::Args),
    /// Archive failed or unused versions of templates.
    Archive(archive::Args),
    /// List templates.
    #[command(alias = "ls")]
    List(list::Args),
    /// List a template's versions, and choose the active one.
    #[command(alias = "version", subcommand_required = true, arg_required_else_help = true)]
    Versions {
        #[command(subcommand)]
        command: versions::Command,
    },
    /// List a template's presets.
    #[command(alias = "preset", subcommand_required = true, arg_required_else_help = true)]
    Presets {
        #[command(subcommand)]
        command: presets::Command,
    },
    /// Delete templates.
    #[command(alias = "rm")]
    Delete(delete::Args),
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init(args) => init::run(ctx, args),
        Command::Push(args) => push::run(ctx, args).await,
        #[cfg(feature = "server")]
        Command::Bundle(args) => bundle::run(ctx, args).await,
        Command::Create(args) => create::run(ctx, args).await,
        Command::List(args) => list::run(ctx, args).await,
        Command::Pull(args) => pull::run(ctx, args).await,
        Command::Edit(args) => edit::run(ctx, args).await,
        Command::Archive(args) => archive::run(ctx, args).await,
        Command::Presets { command } => presets::run(ctx, command).await,
        Command::Versions { command } => versions::run(ctx, command).await,
        Command::Delete(args) => delete::run(ctx, args).await,
    }
}
