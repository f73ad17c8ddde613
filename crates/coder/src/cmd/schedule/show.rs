//! Shows when workspaces start and stop: `coder schedule show`.

use coder_api::Timestamp;
use coder_api::builds::{Transition, WorkspaceStatus};
use coder_api::workspaces::Workspace;
use coder_domain::schedule::{Schedule, zones};
use serde::Serialize;

use super::input;
use crate::context::Context;
use crate::terminal::output::strip_control;
use crate::terminal::table::{self, Column, Format, Listed};
use crate::{duration, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Workspace, as name or owner/name; without one, all of yours.
    workspace: Option<String>,
    /// All workspaces, not only your own.
    #[arg(short, long)]
    all: bool,
    /// Search words, such as `template:docker status:running`.
    #[arg(long, value_name = "QUERY")]
    search: Option<String>,
    #[command(flatten)]
    table: table::TableOptions<ScheduleRow>,
}

/// One row. The names are those of the official JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ScheduleRow {
    workspace: String,
    starts_at: String,
    starts_next: String,
    stops_after: String,
    stops_next: String,
}

impl Listed for ScheduleRow {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("workspace", true, |row| row.workspace.clone()),
        Column::text("starts at", true, |row| row.starts_at.clone()),
        Column::text("starts next", true, |row| row.starts_next.clone()),
        Column::text("stops after", true, |row| row.stops_after.clone()),
        Column::text("stops next", true, |row| row.stops_next.clone()),
    ];
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    if let Some(name) = &args.workspace {
        let workspace = remote::workspace(&client, name).await?;
        return print(ctx, &args.table, &[workspace]);
    }
    let query = match &args.search {
        Some(words) => words.clone(),
        None if args.all => String::new(),
        None => "owner:me".to_owned(),
    };
    let found = client.workspaces(&query).await?;
    print(ctx, &args.table, &found.workspaces)
}

/// Shows one workspace, after a change.
pub(super) fn one(ctx: &Context, workspace: Workspace) -> anyhow::Result<()> {
    print(ctx, &table::TableOptions::new(Vec::new(), Format::Table), &[workspace])
}

fn print(
    ctx: &Context,
    options: &table::TableOptions<ScheduleRow>,
    found: &[Workspace],
) -> anyhow::Result<()> {
    let zone = input::local_zone();
    let rows: Vec<_> = found.iter().map(|workspace| row(workspace, zone.as_deref())).collect();
    table::print(
        &ctx.printer,
        options,
        &rows,
        "There are no workspaces. Make one with: coder create <name>",
    )?;
    for workspace in found {
        for why in explanations(workspace, zone.as_deref()) {
            ctx.printer.note(&format!("{}: {why}", workspace.name));
        }
    }
    Ok(())
}

fn row(workspace: &Workspace, zone: Option<&str>) -> ScheduleRow {
    let schedule = workspace.autostart_schedule.as_deref();
    let readable = |text: &str| {
        Schedule::weekly(text)
            .map_or_else(|_| strip_control(text).into_owned(), |schedule| schedule.humanize())
    };
    ScheduleRow {
        workspace: format!("{}/{}", workspace.owner_name, workspace.name),
        starts_at: schedule.map(readable).unwrap_or_default(),
        starts_next: workspace.next_start_at.map(|at| local(at, zone)).unwrap_or_default(),
        stops_after: stops_after(workspace),
        stops_next: stops_next(workspace).map(|at| local(at, zone)).unwrap_or_default(),
    }
}

fn stops_after(workspace: &Workspace) -> String {
    let millis = workspace.ttl_ms.and_then(|ttl| u64::try_from(ttl).ok()).filter(|ttl| *ttl > 0);
    millis.map(|ttl| duration::units(std::time::Duration::from_millis(ttl))).unwrap_or_default()
}

/// When a started workspace stops.
pub(crate) fn stops_next(workspace: &Workspace) -> Option<Timestamp> {
    let build = &workspace.latest_build;
    build.deadline.filter(|_| build.transition == Transition::Start)
}

/// An instant in the local time zone, as RFC 3339.
fn local(at: Timestamp, zone: Option<&str>) -> String {
    match zone.filter(|name| *name != "UTC").and_then(zones::find) {
        Some(zone) => at.to_zoned(zone).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        None => table::time(at),
    }
}

/// Why nothing happens, and what happens besides.
fn explanations(workspace: &Workspace, zone: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    if !workspace.schedule_note.is_empty() {
        found.push(strip_control(&workspace.schedule_note).into_owned());
    } else if workspace.autostart_schedule.is_some()
        && workspace.latest_build.status == WorkspaceStatus::Failed
    {
        found.push("does not start by its schedule, because the last build failed".to_owned());
    }
    if let Some(at) = workspace.dormant_at {
        let end = match workspace.deleting_at {
            Some(at) => format!("it is deleted at {} unless it is started", local(at, zone)),
            None => "it does not start by its schedule".to_owned(),
        };
        found.push(format!("dormant since {}: {end}", local(at, zone)));
    }
    if let Some(max) = workspace.latest_build.max_deadline.filter(|_| stops_next(workspace).is_some()) {
        found.push(format!("its template requires a stop at {}", local(max, zone)));
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn workspace(more: &Value) -> Workspace {
        let id = "6f0c2f5e-8f4b-4f0e-9c1a-0b6f0d1c2e3a";
        let at = "2026-11-23T08:00:00Z";
        let mut body = json!({
            "id": id, "created_at": at, "updated_at": at, "owner_id": id, "owner_name": "dev", "organization_id": id,
            "template_id": id, "template_active_version_id": id, "name": "w",
            "latest_build": { "id": id, "created_at": at, "updated_at": at, "workspace_id": id, "workspace_owner_id": id,
                "template_version_id": id, "build_number": 1, "transition": "start", "initiator_id": id,
                "job": { "id": id, "created_at": at, "status": "succeeded", "file_id": id, "organization_id": id,
                    "initiator_id": id, "type": "workspace_build" },
                "reason": "initiator", "status": "running", "deadline": "2026-11-23T16:00:00Z" }
        });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_row_has_the_schedules_of_a_workspace() {
        let found = workspace(
            &json!({ "autostart_schedule": "CRON_TZ=Europe/Dublin 30 9 * * 1-5", "ttl_ms": 28_800_000,
            "next_start_at": "2026-11-24T09:30:00Z" }),
        );
        let wanted = ScheduleRow {
            workspace: "dev/w".to_owned(),
            starts_at: "9:30AM Mon-Fri (Europe/Dublin)".to_owned(),
            starts_next: "2026-11-24T10:30:00+01:00".to_owned(),
            stops_after: "8h".to_owned(),
            stops_next: "2026-11-23T17:00:00+01:00".to_owned(),
        };
        assert_eq!(row(&found, Some("Europe/Berlin")), wanted);
        let shown = row(&found, None);
        assert_eq!(
            (shown.starts_next.as_str(), shown.stops_next.as_str()),
            ("2026-11-24T09:30:00Z", "2026-11-23T16:00:00Z")
        );
        assert!(explanations(&found, None).is_empty());
    }

    #[test]
    fn reasons_against_a_start_are_listed() {
        let note =
            workspace(&json!({ "autostart_schedule": "0 9 * * *", "schedule_note": "autostart: no daemon" }));
        assert_eq!(explanations(&note, None), ["autostart: no daemon"]);
        let dormant = workspace(
            &json!({ "dormant_at": "2026-11-23T08:00:00Z", "deleting_at": "2026-11-30T08:00:00Z" }),
        );
        let said = explanations(&dormant, None);
        assert_eq!(
            said,
            [
                "dormant since 2026-11-23T08:00:00Z: it is deleted at 2026-11-30T08:00:00Z unless it is started"
            ]
        );
    }
}
