//! Lists templates: `coder templates list`.

use std::time::Duration;

use coder_api::templates::Template;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::table::{self, Column, Listed};
use crate::{duration, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: table::TableOptions<Row>,
}

/// A template in the JSON of official clients: an object inside an object.
#[derive(Serialize)]
struct Row {
    #[serde(rename = "Template")]
    template: Template,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", true, |row| row.template.name.clone()),
        Column::text("display name", false, |row| row.template.display_name.clone()),
        Column::optional(Column::text("organization name", true, |row| {
            row.template.organization_name.clone()
        })),
        Column::time("created at", false, |row| Some(row.template.created_at), ""),
        Column::time("last updated", true, |row| Some(row.template.updated_at), ""),
        Column::text("organization id", false, |row| row.template.organization_id.to_string()),
        Column::text("provisioner", false, |row| row.template.provisioner.to_string()),
        Column::text("active version id", false, |row| row.template.active_version_id.to_string()),
        Column::text("used by", true, used_by),
        Column::text("default ttl", false, default_ttl),
        Column::text("id", false, |row| row.template.id.to_string()),
    ];
}

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
    if args.table.format != table::Format::Json {
        templates.sort_by(|one, other| one.name.cmp(&other.name));
    }
    let rows: Vec<Row> = templates.into_iter().map(|template| Row { template }).collect();
    let empty = "There are no templates. Make one with: coder templates init, then coder templates push";
    table::print(&ctx.printer, &args.table, &rows, empty)
}
