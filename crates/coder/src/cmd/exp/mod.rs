//! `coder exp …`: commands for authors of templates and for tests.

pub(crate) mod convert;
mod web_page;

use crate::context::Context;

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Interpret Terraform's output as a provisioner does.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Terraform {
        #[command(subcommand)]
        command: TerraformCommand,
    },
    /// Serve one page over HTTP, for trying apps and forwarded ports of a workspace.
    WebPage(web_page::Args),
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum TerraformCommand {
    /// Print how a provisioner interprets a plan or a state: resources, agents, apps, parameters and presets, as JSON.
    Convert(convert::Args),
}

pub(crate) fn run(ctx: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::WebPage(args) => web_page::run(ctx, args),
        Command::Terraform { command: TerraformCommand::Convert(args) } => convert::run(args),
    }
}
