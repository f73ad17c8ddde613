//! Stops a workspace: `coder stop`.

use coder_api::builds::{CreateWorkspaceBuildRequest, Transition};

use super::build;
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
    build: build::BuildFlags,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    if !args.yes {
        prompt::confirm(&ctx.printer, &format!("Stop workspace {:?}?", args.workspace), "pass --yes")?;
    }
    let workspace = remote::workspace(&client, &args.workspace).await?;
    let mut request = CreateWorkspaceBuildRequest::new(Transition::Stop);
    request.log_level = args.build.log_level();
    let build = build::request(&client, workspace.id, &request).await?;
    build::finish(ctx, &client, &build).await?;
    ctx.printer.note(&format!("Workspace {:?} is stopped.", workspace.name));
    Ok(())
}
