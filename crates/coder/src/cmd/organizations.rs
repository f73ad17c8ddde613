//! `coder organizations show`

use coder_api::organizations::Organization;

use crate::args;
use crate::context::Context;
use crate::remote;
use crate::table::{self, Column};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Show an organization.
    Show(ShowArgs),
}

/// Arguments of `show`.
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
    table: table::Options,
}

const COLUMNS: &[Column<Organization>] = &[
    Column { name: "id", shown: true, cell: |organization| organization.id.to_string() },
    Column { name: "name", shown: true, cell: |organization| organization.name.clone() },
    Column { name: "display name", shown: false, cell: |organization| organization.display_name.clone() },
    Column { name: "description", shown: false, cell: |organization| organization.description.clone() },
    Column { name: "created at", shown: false, cell: |organization| table::time(organization.created_at) },
    Column { name: "default", shown: true, cell: |organization| organization.is_default.to_string() },
];

pub(crate) async fn run(ctx: &Context, Command::Show(args): Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let rows: Vec<Organization> = match args.which.as_str() {
        "selected" => vec![remote::organization(ctx, &client, args.organization.org.as_deref()).await?],
        "me" => client.my_organizations().await?,
        name => vec![client.organization(name).await?],
    };
    if args.only_id {
        rows.iter().for_each(|row| ctx.printer.data(&row.id.to_string()));
        return Ok(());
    }
    table::print(&ctx.printer, &args.table, COLUMNS, &rows, "You are in no organization.")
}
