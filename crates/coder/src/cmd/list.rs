//! Lists workspaces: `coder list`.

use coder_api::builds::WorkspaceStatus;
use coder_api::workspaces::Workspace;

use super::schedule;
use crate::context::Context;
use crate::remote;
use crate::terminal::table::{self, Column, Listed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// All workspaces, not only your own.
    #[arg(short, long)]
    all: bool,
    /// Search words, such as `template:docker status:running`.
    #[arg(long, value_name = "QUERY")]
    search: Option<String>,
    #[command(flatten)]
    table: table::TableOptions<Workspace>,
}

impl Listed for Workspace {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("workspace", true, |w| format!("{}/{}", w.owner_name, w.name)),
        Column::text("template", true, |w| w.template_name.clone()),
        Column::text("status", true, |w| capital(w.latest_build.status.as_str())),
        Column::optional(Column::text("healthy", true, healthy)),
        Column::text("last built", true, |w| table::relative(w.latest_build.created_at)),
        Column::optional(Column::text("current version", true, |w| {
            w.latest_build.template_version_name.clone()
        })),
        Column::optional(Column::text("outdated", true, |w| w.outdated.to_string())),
        Column::text("starts at", false, |w| w.autostart_schedule.clone().unwrap_or_default()),
        Column::text("starts next", false, |w| table::time_or(w.next_start_at, "")),
        Column::text("stops after", false, stops_after),
        Column::text("stops next", false, |w| table::time_or(schedule::stops_next(w), "")),
        Column::text("favorite", false, |w| w.favorite.to_string()),
        Column::text("organization name", false, |w| w.organization_name.clone()),
        Column::text("id", false, |w| w.id.to_string()),
    ];
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}

/// Health is meaningful only for running workspaces.
fn healthy(workspace: &Workspace) -> String {
    let running = workspace.latest_build.status == WorkspaceStatus::Running;
    if running { workspace.health.healthy.to_string() } else { String::new() }
}

fn stops_after(workspace: &Workspace) -> String {
    let millis = workspace.ttl_ms.and_then(|ttl| u64::try_from(ttl).ok()).filter(|ttl| *ttl > 0);
    millis.map(|ttl| crate::duration::format(std::time::Duration::from_millis(ttl))).unwrap_or_default()
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let query = match &args.search {
        Some(words) => words.clone(),
        None if args.all => String::new(),
        None => "owner:me".to_owned(),
    };
    let found = client.workspaces(&query).await?;
    let empty = match &args.search {
        Some(words) => format!("There are no workspaces that match {words:?}."),
        None => "There are no workspaces. Make one with: coder create <name>".to_owned(),
    };
    table::print(&ctx.printer, &args.table, &found.workspaces, &empty)
}
