//! Lists provisioner daemons: `coder provisioner list`.

use std::time::Duration;

use coder_api::client::DaemonFilter;
use coder_api::daemons::{ProvisionerDaemon, ProvisionerDaemonJob, VersionSkew};
use serde::Serialize;

use crate::context::Context;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, duration, env, remote};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Most daemons to show.
    #[arg(short, long, env = env::PROVISIONER_LIST_LIMIT, default_value_t = 50, value_name = "NUMBER")]
    limit: u32,
    /// Also daemons that are offline.
    #[arg(short = 'f', long, alias = "include-offline", env = env::PROVISIONER_SHOW_OFFLINE)]
    show_offline: bool,
    /// Only daemons in these statuses: idle, busy, offline.
    #[arg(short, long, env = env::PROVISIONER_LIST_STATUS, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<String>,
    /// Only daemons that were seen within this time.
    #[arg(short, long, env = env::PROVISIONER_LIST_MAX_AGE, value_parser = duration::parse, value_name = "DURATION")]
    max_age: Option<Duration>,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<Row>,
}

/// A daemon with the one field that the CLI adds (http-api 5.3).
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    daemon: ProvisionerDaemon,
    organization_name: String,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("id", false, |row| row.daemon.id.to_string()),
        Column::text("organization id", false, |row| row.daemon.organization_id.to_string()),
        Column::optional(Column::time("created at", true, |row| Some(row.daemon.created_at), "")),
        Column::time("last seen at", true, |row| row.daemon.last_seen_at, "never"),
        Column::optional(Column::text("key name", true, |row| {
            row.daemon.key_name.clone().unwrap_or_default()
        })),
        Column::text("name", true, |row| row.daemon.name.clone()),
        Column::optional(Column::text("version", true, |row| row.daemon.version.clone())),
        Column::text("api version", false, |row| row.daemon.api_version.clone()),
        Column::optional(Column::text("skew", true, skew)),
        Column::text("status", true, status),
        Column::text("slots", false, slots),
        Column::text("current job id", false, |row| {
            job(row.daemon.current_job.as_ref(), |job| job.id.to_string())
        }),
        Column::text("current job status", false, |row| {
            job(row.daemon.current_job.as_ref(), |job| job.status.to_string())
        }),
        Column::text("current job template name", false, |row| {
            job(row.daemon.current_job.as_ref(), |job| job.template_name.clone())
        }),
        Column::text("current job template display name", false, |row| {
            job(row.daemon.current_job.as_ref(), |job| job.template_display_name.clone())
        }),
        Column::text("previous job id", false, |row| {
            job(row.daemon.previous_job.as_ref(), |job| job.id.to_string())
        }),
        Column::text("previous job status", false, |row| {
            job(row.daemon.previous_job.as_ref(), |job| job.status.to_string())
        }),
        Column::text("previous job template name", false, |row| {
            job(row.daemon.previous_job.as_ref(), |job| job.template_name.clone())
        }),
        Column::text("previous job template display name", false, |row| {
            job(row.daemon.previous_job.as_ref(), |job| job.template_display_name.clone())
        }),
        Column::text("organization", false, |row| row.organization_name.clone()),
        Column::tags(|row| &row.daemon.tags),
    ];
}

fn status(row: &Row) -> String {
    let status = row.daemon.status.as_ref().map(ToString::to_string).unwrap_or_default();
    let Some(extras) = row.daemon.extras.as_ref().filter(|_| status != "offline") else { return status };
    let mut words = vec![status];
    if extras.draining {
        words.push("draining".to_owned());
    }
    if !extras.problem.is_empty() {
        // A daemon that cannot run jobs does not count as idle.
        words.retain(|word| word != "idle");
        words.push(format!("unhealthy: {}", extras.problem));
    }
    words.join(", ")
}

/// How its versions differ from the server's; empty when they do not differ, or the server is an official one.
fn skew(row: &Row) -> String {
    let Some(extras) = &row.daemon.extras else { return String::new() };
    let parts = [("version", &extras.version_skew), ("api", &extras.api_version_skew)];
    let differs = parts.into_iter().filter(|(_, skew)| **skew != VersionSkew::Same);
    differs.map(|(what, skew)| format!("{what} {skew}")).collect::<Vec<_>>().join(", ")
}

/// Busy slots of all slots.
fn slots(row: &Row) -> String {
    row.daemon
        .extras
        .as_ref()
        .map(|extras| format!("{}/{}", extras.busy_slots, extras.slots))
        .unwrap_or_default()
}

fn job(job: Option<&ProvisionerDaemonJob>, text: fn(&ProvisionerDaemonJob) -> String) -> String {
    job.map(text).unwrap_or_default()
}

pub(crate) async fn run(ctx: &Context, args: Args) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let filter = DaemonFilter {
        limit: Some(args.limit),
        offline: args.show_offline,
        status: args.status,
        max_age: args.max_age,
        ..DaemonFilter::default()
    };
    let daemons = client.daemons(organization.id, &filter).await?;
    let rows: Vec<Row> = daemons
        .into_iter()
        .map(|daemon| Row { daemon, organization_name: organization.name.clone() })
        .collect();
    let empty = "There are no provisioner daemons. Start one with: coder provisioner start";
    table::print(&ctx.printer, &args.table, &rows, empty)
}
