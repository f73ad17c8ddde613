//! `coder list`

use coder_api::builds::WorkspaceStatus;
use coder_api::workspaces::Workspace;

use crate::context::Context;
use crate::remote;
use crate::table::{self, Column};

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// All workspaces, not only your own.
    #[arg(short, long)]
    all: bool,
    /// Search words, such as `template:docker status:running`.
    #[arg(long, value_name = "QUERY")]
    search: Option<String>,
    #[command(flatten)]
    table: table::Options,
}

const COLUMNS: &[Column<Workspace>] = &[
    Column { name: "workspace", shown: true, cell: |w| format!("{}/{}", w.owner_name, w.name) },
    Column { name: "template", shown: true, cell: |w| w.template_name.clone() },
    Column { name: "status", shown: true, cell: |w| capital(w.latest_build.status.as_str()) },
    Column { name: "healthy", shown: true, cell: healthy },
    Column { name: "last built", shown: true, cell: |w| table::ago(w.latest_build.created_at) },
    Column { name: "current version", shown: true, cell: |w| w.latest_build.template_version_name.clone() },
    Column { name: "outdated", shown: true, cell: |w| w.outdated.to_string() },
    Column { name: "starts at", shown: false, cell: |w| w.autostart_schedule.clone().unwrap_or_default() },
    Column { name: "stops after", shown: false, cell: stops_after },
    Column { name: "organization name", shown: false, cell: |w| w.organization_name.clone() },
    Column { name: "id", shown: false, cell: |w| w.id.to_string() },
];

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    let first = characters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + characters.as_str()
}

/// Health means something for running workspaces only.
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
    let empty = "There are no workspaces. Make one with: coder create <name>";
    table::print(&ctx.printer, &args.table, COLUMNS, &found.workspaces, empty)
}
