//! Shows organizations: `coder organizations show|list`.

use coder_api::organizations::Organization;

use crate::context::Context;
use crate::terminal::table;
use crate::{args, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// `selected` (the one commands work in), `me` (all of yours), or a name or id.
    #[arg(default_value = "selected")]
    which: String,
    /// Print the id alone.
    #[arg(long)]
    only_id: bool,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<Organization>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    table: table::TableOptions<Organization>,
}

pub(super) async fn show(ctx: &Context, args: ShowArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let rows: Vec<Organization> = match args.which.as_str() {
        "selected" => vec![remote::organization(ctx, &client, args.organization.org.as_deref()).await?],
        "me" => client.my_organizations().await?,
        name => vec![remote::any_organization(&client, name).await?],
    };
    if args.only_id {
        rows.iter().for_each(|row| ctx.printer.data(&row.id.to_string()));
        return Ok(());
    }
    table::print(&ctx.printer, &args.table, &rows, "You are in no organization.")
}

pub(super) async fn list(ctx: &Context, args: ListArgs) -> anyhow::Result<()> {
    let rows = remote::connect(ctx)?.organizations().await?;
    table::print(&ctx.printer, &args.table, &rows, "There are no organizations that you may see.")
}
