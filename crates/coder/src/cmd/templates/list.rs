//! `coder templates list`

use std::time::Duration;

use coder_api::templates::Template;
use serde::Serialize;

use crate::context::Context;
use crate::table::{self, Column};
use crate::{duration, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: table::Options,
}

/// A template as official clients print it with `-o json`: an object in an object.
#[derive(Serialize)]
struct Row {
    #[serde(rename = "Template")]
    template: Template,
}

const COLUMNS: &[Column<Row>] = &[
    Column { name: "name", shown: true, cell: |row| row.template.name.clone() },
    Column { name: "display name", shown: false, cell: |row| row.template.display_name.clone() },
    Column { name: "organization name", shown: true, cell: |row| row.template.organization_name.clone() },
    Column { name: "created at", shown: false, cell: |row| table::time(row.template.created_at) },
    Column { name: "last updated", shown: true, cell: |row| table::time(row.template.updated_at) },
    Column { name: "organization id", shown: false, cell: |row| row.template.organization_id.to_string() },
    Column { name: "provisioner", shown: false, cell: |row| row.template.provisioner.to_string() },
    Column {
        name: "active version id",
        shown: false,
        cell: |row| row.template.active_version_id.to_string(),
    },
    Column { name: "used by", shown: true, cell: used_by },
    Column { name: "default ttl", shown: false, cell: default_ttl },
    Column { name: "id", shown: false, cell: |row| row.template.id.to_string() },
];

fn used_by(row: &Row) -> String {
    match row.template.active_user_count {
        ..=0 => String::new(),
        1 => "1 developer".to_owned(),
        count => format!("{count} developers"),
    }
}

fn default_ttl(row: &Row) -> String {
    let millis = u64::try_from(row.template.default_ttl_ms).unwrap_or_default();
    duration::format(Duration::from_millis(millis))
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let mut templates = remote::connect(ctx)?.templates("").await?;
    if args.table.format == table::Format::Table {
        templates.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let rows: Vec<Row> = templates.into_iter().map(|template| Row { template }).collect();
    let empty = "There are no templates. Make one with: coder templates init, then coder templates push";
    table::print(&ctx.printer, &args.table, COLUMNS, &rows, empty)
}
