//! Shows the signed-in user and server: `coder whoami`.

use std::collections::BTreeMap;

use coder_api::paths;
use serde::Serialize;

use crate::context::Context;
use crate::remote;
use crate::terminal::output::Style;
use crate::terminal::table::{self, Column, Listed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Columns to show, separated by commas: url, username, id, orgs, roles.
    #[arg(short = 'c', long = "column", value_delimiter = ',', value_name = "NAMES")]
    columns: Vec<String>,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: WhoamiFormat,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum WhoamiFormat {
    Text,
    Table,
    Json,
}

#[derive(Serialize)]
struct Row {
    url: String,
    username: String,
    user_id: String,
    organization_ids: Vec<String>,
    /// Display names of the roles by organization; `*` is the whole deployment.
    roles: BTreeMap<String, Vec<String>>,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("url", true, |row| row.url.clone()),
        Column::text("username", true, |row| row.username.clone()),
        Column::text("id", true, |row| row.user_id.clone()),
        Column::text("orgs", false, |row| row.organization_ids.join(",")),
        Column::text("roles", false, roles),
    ];
}

fn roles(row: &Row) -> String {
    let pair = |(organization, name): (&String, &String)| format!("{organization}:{name}");
    let pairs =
        row.roles.iter().flat_map(|(organization, names)| names.iter().map(move |name| (organization, name)));
    pairs.map(pair).collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let me = client.user(paths::ME).await?;
    let url = client.base().to_string();
    let mut roles = BTreeMap::<String, Vec<String>>::new();
    for role in &me.roles {
        let organization = role.organization_id.map_or_else(|| "*".to_owned(), |id| id.to_string());
        roles.entry(organization).or_default().push(role.display_name.clone());
    }
    let row = Row {
        url: url.trim_end_matches('/').to_owned(),
        username: me.username.clone(),
        user_id: me.id.to_string(),
        organization_ids: me.organization_ids.iter().map(ToString::to_string).collect(),
        roles,
    };
    match args.output {
        WhoamiFormat::Text => {
            let bold = |text: &str| ctx.printer.paint(Style::Bold, text);
            ctx.printer.data(&format!("Logged in to {} as {}", bold(&row.url), bold(&row.username)));
            Ok(())
        }
        WhoamiFormat::Table => {
            let options = table::TableOptions::new(args.columns, table::Format::Table);
            table::print(&ctx.printer, &options, &[row], "")
        }
        WhoamiFormat::Json => {
            ctx.printer.json(&[row])?;
            Ok(())
        }
    }
}
