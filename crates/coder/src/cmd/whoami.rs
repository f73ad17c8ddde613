//! `coder whoami`

use coder_api::paths;
use serde::Serialize;

use crate::context::Context;
use crate::output::Look;
use crate::remote;
use crate::table::{self, Column};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Columns to show, separated by commas.
    #[arg(short = 'c', long = "column", value_delimiter = ',', value_name = "NAMES")]
    columns: Vec<String>,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value = "text", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    Text,
    Table,
    Json,
}

#[derive(Serialize)]
struct Row {
    url: String,
    username: String,
    user_id: String,
    organization_ids: String,
    roles: String,
}

const COLUMNS: &[Column<Row>] = &[
    Column { name: "url", shown: true, cell: |row| row.url.clone() },
    Column { name: "username", shown: true, cell: |row| row.username.clone() },
    Column { name: "user id", shown: true, cell: |row| row.user_id.clone() },
    Column { name: "organization ids", shown: false, cell: |row| row.organization_ids.clone() },
    Column { name: "roles", shown: true, cell: |row| row.roles.clone() },
];

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let me = client.user(paths::ME).await?;
    let url = client.base().to_string();
    let join = |words: Vec<String>| words.join(",");
    let row = Row {
        url: url.trim_end_matches('/').to_owned(),
        username: me.username.clone(),
        user_id: me.id.to_string(),
        organization_ids: join(me.organization_ids.iter().map(ToString::to_string).collect()),
        roles: join(me.roles.iter().map(|role| role.name.clone()).collect()),
    };
    match args.output {
        Format::Text => {
            let bold = |text: &str| ctx.printer.paint(Look::Bold, text);
            ctx.printer.data(&format!("Logged in to {} as {}", bold(&row.url), bold(&row.username)));
            Ok(())
        }
        Format::Table => {
            let options = table::Options { columns: args.columns, format: table::Format::Table };
            table::print(&ctx.printer, &options, COLUMNS, &[row], "")
        }
        Format::Json => {
            ctx.printer.data(&serde_json::to_string_pretty(&[row])?);
            Ok(())
        }
    }
}
