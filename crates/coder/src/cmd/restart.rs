//! Stops a workspace and starts it again: `coder restart`.

use coder_api::builds::{CreateWorkspaceBuildRequest, Transition};

use super::{build, start};
use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    values: start::Values,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    // Parameters come first: an unanswered question must not leave the workspace stopped.
    let request = start::prepare(ctx, &client, &workspace, &args.values, args.yes).await?;
    if !args.yes {
        prompt::confirm(&ctx.printer, &format!("Restart workspace {:?}?", workspace.name), "pass --yes")?;
    }
    let stop = CreateWorkspaceBuildRequest::new(Transition::Stop);
    let build = build::request(&client, workspace.id, &stop).await?;
    build::finish(ctx, &client, &build).await?;
    let build = start::request_start(ctx, &client, &workspace, request).await?;
    build::finish(ctx, &client, &build).await?;
    ctx.printer.note(&format!("Workspace {:?} is running again.", workspace.name));
    Ok(())
}
