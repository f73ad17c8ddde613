//! `coder update`: a build with the template's active version.

use coder_api::builds::{CreateWorkspaceBuildRequest, Transition};

use super::{build, start};
use crate::context::Context;
use crate::remote;

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
    if !workspace.outdated && !args.values.asks_for_all() {
        ctx.printer.note(&format!("Workspace {:?} is up to date.", workspace.name));
        return Ok(());
    }
    let version = workspace.template_active_version_id;
    // Parameters come first: an unanswered question must not leave the workspace stopped.
    let request = start::prepare_with(ctx, &client, &workspace, version, &args.values, args.yes).await?;
    if workspace.latest_build.transition == Transition::Start {
        let stop = CreateWorkspaceBuildRequest::new(Transition::Stop);
        let build = build::request(&client, workspace.id, &stop).await?;
        build::finish(ctx, &client, &build).await?;
    }
    let build = start::request_start(ctx, &client, &workspace, request).await?;
    build::finish(ctx, &client, &build).await?;
    ctx.printer.note(&format!("Workspace {:?} is updated.", workspace.name));
    Ok(())
}
