//! Changes when a workspace starts and stops: `coder schedule start|stop|extend`.

use std::time::Duration;

use anyhow::ensure;
use coder_api::client::Client;
use coder_api::templates::WEEKDAYS;
use coder_api::workspaces::Workspace;
use coder_domain::clock::{Clock as _, SystemClock};
use jiff::SignedDuration;

use super::{input, show};
use crate::context::Context;
use crate::remote;

/// The word that turns a schedule off.
const MANUAL: &str = "manual";
/// The shortest extension.
const LEAST_EXTENSION: Duration = Duration::from_secs(30 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Time, days and time zone, or `manual` for no schedule.
    #[arg(required = true, num_args = 1..=3, value_name = "SCHEDULE")]
    schedule: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Duration such as 2h30m, a number of minutes, or `manual` for none.
    duration: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExtendArgs {
    /// Workspace, as name or owner/name.
    workspace: String,
    /// Duration from now, such as 90m.
    duration: String,
}

pub(super) async fn start(ctx: &Context, args: StartArgs) -> anyhow::Result<()> {
    let schedule = match args.schedule.as_slice() {
        [word] if word == MANUAL => None,
        words => Some(input::autostart(words)?),
    };
    let client = remote::connect(ctx)?;
    let workspace = changeable(&client, &args.workspace).await?;
    if schedule.is_some() {
        let days = client.template(workspace.template_id).await?.autostart_requirement.days_of_week;
        if days.len() < WEEKDAYS.len() {
            let days = if days.is_empty() { "no day".to_owned() } else { days.join(", ") };
            ctx.printer.warn(&format!("the template allows automatic starts on {days} only"));
        }
    }
    client.set_autostart(workspace.id, schedule.as_deref()).await?;
    show::one(ctx, client.workspace(workspace.id).await?)
}

pub(super) async fn stop(ctx: &Context, args: StopArgs) -> anyhow::Result<()> {
    let ttl = match args.duration.as_str() {
        MANUAL => None,
        text => Some(i64::try_from(input::minutes(text)?.as_millis()).unwrap_or(i64::MAX)),
    };
    let client = remote::connect(ctx)?;
    let workspace = changeable(&client, &args.workspace).await?;
    client.set_ttl(workspace.id, ttl).await?;
    show::one(ctx, client.workspace(workspace.id).await?)
}

pub(super) async fn extend(ctx: &Context, args: ExtendArgs) -> anyhow::Result<()> {
    let duration = input::minutes(&args.duration)?;
    ensure!(duration >= LEAST_EXTENSION, "{:?} is too short: extend by at least 30 minutes", args.duration);
    let client = remote::connect(ctx)?;
    let workspace = changeable(&client, &args.workspace).await?;
    let deadline = SystemClock.now().checked_add(SignedDuration::try_from(duration)?)?;
    client.extend_workspace(workspace.id, deadline).await?;
    show::one(ctx, client.workspace(workspace.id).await?)
}

/// A workspace with schedules of its own.
async fn changeable(client: &Client, name: &str) -> anyhow::Result<Workspace> {
    let workspace = remote::workspace(client, name).await?;
    ensure!(
        !workspace.is_prebuild,
        "workspace {name:?} is a prebuilt one: its template decides when it starts and stops"
    );
    Ok(workspace)
}
