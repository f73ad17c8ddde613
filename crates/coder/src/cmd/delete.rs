//! Deletes a workspace: `coder delete`.

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
    /// Delete the workspace without destroying its resources.
    #[arg(long)]
    orphan: bool,
    #[command(flatten)]
    build: build::BuildFlags,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    if args.orphan {
        ctx.printer.warn("the workspace is forgotten, but its resources stay and must be removed by hand");
    }
    if !args.yes {
        let question = format!("Delete workspace {}/{} for ever?", workspace.owner_name, workspace.name);
        prompt::confirm(&ctx.printer, &question, "pass --yes")?;
    }
    let mut request = CreateWorkspaceBuildRequest::new(Transition::Delete);
    request.orphan = args.orphan;
    request.log_level = args.build.log_level();
    let build = build::request(&client, workspace.id, &request).await?;
    build::finish(ctx, &client, &build).await?;
    ctx.printer.note(&format!("Workspace {:?} is deleted.", workspace.name));
    Ok(())
}
