//! Lists the presets of a template version: `coder templates presets list`.

use coder_api::versions::Preset;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the presets of a template's version.
    #[command(alias = "ls")]
    List(ListArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Name of the template.
    template: String,
    /// Version of the template; default the active one.
    #[arg(long, value_name = "NAME")]
    template_version: Option<String>,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<Row>,
}

/// A preset in the JSON of official clients: an object inside an object.
#[derive(Serialize)]
struct Row {
    #[serde(rename = "TemplatePreset")]
    preset: Preset,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("name", true, |row| row.preset.name.clone()),
        Column::optional(Column::text("description", true, |row| row.preset.description.clone())),
        Column::text("parameters", true, parameters),
        Column::text("default", true, |row| row.preset.default.to_string()),
        Column::optional(Column::text("desired prebuild instances", true, |row| {
            row.preset.desired_prebuild_instances.map_or_else(|| "-".to_owned(), |count| count.to_string())
        })),
    ];
}

fn parameters(row: &Row) -> String {
    let pairs = row.preset.parameters.iter().map(|pair| format!("{}={}", pair.name, pair.value));
    pairs.collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Context, Command::List(args): Command) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let template = remote::template(&client, &organization, &args.template).await?;
    let version = match &args.template_version {
        Some(name) => remote::version(&client, &template, name).await?.id,
        None => template.active_version_id,
    };
    let presets = client.presets(version).await?;
    let rows: Vec<Row> = presets.into_iter().map(|preset| Row { preset }).collect();
    table::print(&ctx.printer, &args.table, &rows, "The version has no presets.")
}
