//! Renames a workspace: `coder rename`.

use crate::context::Context;
use crate::remote;
use crate::terminal::prompt;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// New name of the workspace.
    name: String,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    if !args.yes {
        ctx.printer.warn(
            "resources that a template names after the workspace are replaced by the next build, and their data is lost",
        );
        let check = |typed: &str| match typed == workspace.name {
            true => Ok(()),
            false => Err(format!("{typed:?} is not the name of the workspace")),
        };
        let question = format!("Type {:?} to rename it:", workspace.name);
        prompt::text(&ctx.printer, &question, None, "pass --yes", check)?;
    }
    let renamed = client.rename_workspace(workspace.id, &args.name).await;
    renamed.map_err(|error| match error.status() {
        Some(status) if status == 405 => anyhow::anyhow!(
            "this server does not allow to rename workspaces: ask an administrator to start it with \
             --allow-workspace-renames"
        ),
        _ => error.into(),
    })?;
    ctx.printer.note(&format!("Workspace {:?} is renamed to {:?}.", workspace.name, args.name));
    Ok(())
}
