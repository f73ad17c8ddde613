//! `coder templates list`

use std::time::Duration;

use coder_api::templates::Template;

use crate::context::Context;
use crate::table::{self, Column};
use crate::{duration, remote};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    table: table::Options,
}

const COLUMNS: &[Column<Template>] = &[
    Column { name: "name", shown: true, cell: |template| template.name.clone() },
    Column { name: "display name", shown: false, cell: |template| template.display_name.clone() },
    Column { name: "organization name", shown: true, cell: |template| template.organization_name.clone() },
    Column { name: "created at", shown: false, cell: |template| table::time(template.created_at) },
    Column { name: "last updated", shown: true, cell: |template| table::time(template.updated_at) },
    Column { name: "organization id", shown: false, cell: |template| template.organization_id.to_string() },
    Column { name: "provisioner", shown: false, cell: |template| template.provisioner.to_string() },
    Column {
        name: "active version id",
        shown: false,
        cell: |template| template.active_version_id.to_string(),
    },
    Column { name: "used by", shown: true, cell: used_by },
    Column { name: "default ttl", shown: false, cell: default_ttl },
    Column { name: "id", shown: false, cell: |template| template.id.to_string() },
];

fn used_by(template: &Template) -> String {
    match template.active_user_count {
        ..=0 => String::new(),
        1 => "1 developer".to_owned(),
        count => format!("{count} developers"),
    }
}

fn default_ttl(template: &Template) -> String {
    let millis = u64::try_from(template.default_ttl_ms).unwrap_or_default();
    duration::format(Duration::from_millis(millis))
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let templates = remote::connect(ctx)?.templates("").await?;
    let empty = "There are no templates. Make one with: coder templates init, then coder templates push";
    table::print(&ctx.printer, &args.table, COLUMNS, &templates, empty)
}
