//! Lists and cancels provisioner jobs: `coder provisioner jobs list|cancel`.

use anyhow::Context as _;
use coder_api::client::{Client, JobFilter};
use coder_api::explanations::WaitingReason;
use coder_api::jobs::{ProvisionerJob, Status};
use coder_domain::ids::JobId;
use serde::Serialize;

use crate::context::Context;
use crate::terminal::output::one_line;
use crate::terminal::table::{self, Column, Listed};
use crate::{args, env, remote};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List jobs, oldest first.
    #[command(alias = "ls")]
    List(ListArgs),
    /// Cancel a job.
    Cancel(CancelArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only jobs in these statuses.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_STATUS, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<String>,
    /// Most jobs to show.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_LIMIT, default_value_t = 50, value_name = "NUMBER")]
    limit: u32,
    /// Only jobs that this user initiated, by name or id.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_INITIATOR, value_name = "USER")]
    initiator: Option<String>,
    /// Show why each waiting job waits, and what to do about it.
    #[arg(short, long)]
    explain: bool,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::TableOptions<Row>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Id of the job.
    job: JobId,
    #[command(flatten)]
    organization: args::Organization,
}

/// A job with the fields that the CLI adds.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    job: ProvisionerJob,
    organization_name: String,
    /// With --explain, of waiting jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<Vec<WaitingReason>>,
}

impl Listed for Row {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::optional(Column::time("created at", true, |row| Some(row.job.created_at), "")),
        Column::text("id", true, |row| row.job.id.to_string()),
        Column::optional(Column::text("type", true, |row| row.job.kind.as_str().to_owned())),
        Column::optional(Column::text("template display name", true, template)),
        Column::text("status", true, |row| row.job.status.to_string()),
        Column::optional(Column::text("queue", true, queue)),
        Column::tags(|row| &row.job.tags),
        Column::time("started at", false, |row| row.job.started_at, ""),
        Column::time("completed at", false, |row| row.job.completed_at, ""),
        Column::time("canceled at", false, |row| row.job.canceled_at, ""),
        Column::text("error", false, |row| row.job.error.clone()),
        Column::text("error code", false, |row| row.job.error_code.clone()),
        Column::text("worker id", false, |row| id(row.job.worker_id)),
        Column::text("worker name", false, |row| row.job.worker_name.clone()),
        Column::text("program", false, |row| {
            row.job.program.as_ref().map(ToString::to_string).unwrap_or_default()
        }),
        Column::text("file id", false, |row| row.job.file_id.to_string()),
        Column::text("queue position", false, |row| row.job.queue_position.to_string()),
        Column::text("queue size", false, |row| row.job.queue_size.to_string()),
        Column::text("organization id", false, |row| row.job.organization_id.to_string()),
        Column::text("initiator id", false, |row| row.job.initiator_id.to_string()),
        Column::text("template version id", false, |row| id(row.job.input.template_version_id)),
        Column::text("workspace build id", false, |row| id(row.job.input.workspace_build_id)),
        Column::text("available workers", false, workers),
        Column::text("template version name", false, |row| row.job.metadata.template_version_name.clone()),
        Column::text("template id", false, |row| id(row.job.metadata.template_id)),
        Column::text("template name", false, |row| row.job.metadata.template_name.clone()),
        Column::text("template icon", false, |row| row.job.metadata.template_icon.clone()),
        Column::text("workspace id", false, |row| id(row.job.metadata.workspace_id)),
        Column::text("workspace name", false, |row| row.job.metadata.workspace_name.clone()),
        Column::text("organization", false, |row| row.organization_name.clone()),
    ];
}

fn id(id: Option<impl ToString>) -> String {
    id.map(|id| id.to_string()).unwrap_or_default()
}

fn template(row: &Row) -> String {
    let metadata = &row.job.metadata;
    let name = if metadata.template_display_name.is_empty() {
        &metadata.template_name
    } else {
        &metadata.template_display_name
    };
    name.clone()
}

fn queue(row: &Row) -> String {
    let (position, size) = (row.job.queue_position, row.job.queue_size);
    if position > 0 { format!("{position}/{size}") } else { String::new() }
}

fn workers(row: &Row) -> String {
    row.job.available_workers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

pub(crate) async fn run(ctx: &Context, command: Command) -> anyhow::Result<()> {
    match command {
        Command::List(args) => list(ctx, args).await,
        Command::Cancel(args) => cancel(ctx, args).await,
    }
}

async fn list(ctx: &Context, args: ListArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let initiator = match &args.initiator {
        Some(user) => Some(remote::user(&client, user).await?.id),
        None => None,
    };
    let filter =
        JobFilter { limit: Some(args.limit), status: args.status, initiator, ..JobFilter::default() };
    let jobs = client.jobs(organization.id, &filter).await?;
    let reasons = if args.explain { reasons(&client, &jobs).await? } else { vec![None; jobs.len()] };
    let row = |(job, reasons)| Row { job, organization_name: organization.name.clone(), reasons };
    let mut rows: Vec<Row> = jobs.into_iter().zip(reasons).map(row).collect();
    oldest_first(&mut rows);
    table::print(&ctx.printer, &args.table, &rows, "There are no provisioner jobs.")?;
    if args.table.format != table::Format::Json {
        rows.iter().flat_map(explained).for_each(|line| ctx.printer.data(&line));
    }
    Ok(())
}

/// The server sends the newest first. Running and waiting jobs are printed last, next to the prompt.
fn oldest_first(rows: &mut [Row]) {
    rows.sort_by_key(|row| row.job.created_at);
}

/// The reasons of each job, in order; none for one that does not wait.
async fn reasons(
    client: &Client,
    jobs: &[ProvisionerJob],
) -> anyhow::Result<Vec<Option<Vec<WaitingReason>>>> {
    let mut all = Vec::with_capacity(jobs.len());
    for job in jobs {
        if job.status != Status::Pending {
            all.push(None);
            continue;
        }
        let explanation = client.explain_job(job.organization_id, job.id).await?;
        let explanation = explanation.context("this server cannot say why jobs wait")?;
        all.push((explanation.status == Status::Pending).then_some(explanation.reasons));
    }
    Ok(all)
}

/// The lines about one job, below the table: each reason, and what to do about it.
fn explained(row: &Row) -> Vec<String> {
    let Some(reasons) = &row.reasons else { return Vec::new() };
    let mut lines = vec![String::new(), format!("Job {} waits:", row.job.id)];
    for reason in reasons {
        lines.push(format!("  {}: {}", one_line(&reason.code), one_line(&reason.message)));
        lines.push(format!("    next: {}", one_line(&reason.next_step)));
    }
    lines
}

async fn cancel(ctx: &Context, args: CancelArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let job = client.job(organization.id, args.job).await?;
    client.cancel_job(&job).await?;
    ctx.printer.note("The job was asked to end.");
    Ok(())
}
