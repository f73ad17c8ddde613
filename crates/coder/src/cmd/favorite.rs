//! `coder favorite`, `coder unfavorite`: favorites come first in lists.

use crate::context::Context;
use crate::remote;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name.
    workspace: String,
}

pub(crate) async fn run(ctx: &Context, args: Args, favorite: bool) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let workspace = remote::workspace(&client, &args.workspace).await?;
    client.set_favorite(workspace.id, favorite).await?;
    let word = if favorite { "a favorite" } else { "not a favorite" };
    ctx.printer.note(&format!("Workspace {:?} is {word} now.", workspace.name));
    Ok(())
}
