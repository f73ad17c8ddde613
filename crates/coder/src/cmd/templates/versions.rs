//! `coder templates versions list`

use coder_api::versions::TemplateVersion;
use serde::Serialize;

use crate::context::Context;
use crate::table::{self, Column};
use crate::{args, remote};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List a template's versions, oldest first.
    #[command(alias = "ls")]
    List(ListArgs),
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Name of the template.
    template: String,
    /// Also archived versions.
    #[arg(long)]
    include_archived: bool,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::Options,
}

#[derive(Serialize)]
struct Row {
    #[serde(rename = "TemplateVersion")]
    version: TemplateVersion,
    active: bool,
}

const COLUMNS: &[Column<Row>] = &[
    Column { name: "id", shown: false, cell: |row| row.version.id.to_string() },
    Column { name: "name", shown: true, cell: |row| row.version.name.clone() },
    Column { name: "created at", shown: true, cell: |row| table::time(row.version.created_at) },
    Column { name: "created by", shown: true, cell: |row| row.version.created_by.username.clone() },
    Column { name: "status", shown: true, cell: |row| row.version.job.status.to_string() },
    Column {
        name: "active",
        shown: true,
        cell: |row| if row.active { "active".to_owned() } else { String::new() },
    },
    Column {
        name: "archived",
        shown: false,
        cell: |row| if row.version.archived { "archived".to_owned() } else { String::new() },
    },
    Column { name: "message", shown: false, cell: |row| row.version.message.clone() },
];

pub(crate) async fn run(ctx: &Context, Command::List(args): Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let versions = client.template_versions(template.id, args.include_archived).await?;
    let row = |version: TemplateVersion| Row { active: version.id == template.active_version_id, version };
    let rows: Vec<Row> = versions.into_iter().map(row).collect();
    table::print(&ctx.printer, &args.table, COLUMNS, &rows, "The template has no versions.")
}
