//! `coder provisioner jobs list|cancel`

use anyhow::Context as _;
use coder_api::client::{Client, JobFilter};
use coder_api::explanations::WaitingReason;
use coder_api::jobs::{ProvisionerJob, Status};
use coder_domain::ids::JobId;
use serde::Serialize;

use crate::context::Context;
use crate::table::{self, Column};
use crate::{args, env, remote};

/// Sub-commands.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List jobs, oldest first.
    #[command(alias = "ls")]
    List(ListArgs),
    /// Cancel a job.
    Cancel(CancelArgs),
}

/// Arguments of `list`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only jobs in these statuses.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_STATUS, value_delimiter = ',', value_name = "STATUS")]
    status: Vec<String>,
    /// Most jobs to show.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_LIMIT, default_value_t = 50, value_name = "NUMBER")]
    limit: u32,
    /// Only jobs that this user asked for, by name or id.
    #[arg(short, long, env = env::PROVISIONER_JOB_LIST_INITIATOR, value_name = "USER")]
    initiator: Option<String>,
    /// Say why each waiting job waits, and what to do about it.
    #[arg(short, long)]
    explain: bool,
    #[command(flatten)]
    organization: args::Organization,
    #[command(flatten)]
    table: table::Options,
}

/// Arguments of `cancel`.
#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    /// Id of the job.
    job: JobId,
    #[command(flatten)]
    organization: args::Organization,
}

/// A job with what the CLI adds.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    job: ProvisionerJob,
    organization_name: String,
    /// With --explain, of waiting jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    reasons: Option<Vec<WaitingReason>>,
}

const COLUMNS: &[Column<Row>] = &[
    Column { name: "created at", shown: true, cell: |row| table::time(row.job.created_at) },
    Column { name: "id", shown: true, cell: |row| row.job.id.to_string() },
    Column { name: "type", shown: true, cell: |row| row.job.kind.as_str().to_owned() },
    Column { name: "template display name", shown: true, cell: template },
    Column { name: "status", shown: true, cell: |row| row.job.status.to_string() },
    Column { name: "queue", shown: true, cell: queue },
    Column { name: "tags", shown: true, cell: |row| row.job.tags.to_string() },
    Column { name: "started at", shown: false, cell: |row| table::time_or(row.job.started_at, "") },
    Column { name: "completed at", shown: false, cell: |row| table::time_or(row.job.completed_at, "") },
    Column { name: "canceled at", shown: false, cell: |row| table::time_or(row.job.canceled_at, "") },
    Column { name: "error", shown: false, cell: |row| row.job.error.clone() },
    Column { name: "error code", shown: false, cell: |row| row.job.error_code.clone() },
    Column { name: "worker id", shown: false, cell: |row| id(row.job.worker_id) },
    Column { name: "worker name", shown: false, cell: |row| row.job.worker_name.clone() },
    Column {
        name: "program",
        shown: false,
        cell: |row| row.job.program.as_ref().map(ToString::to_string).unwrap_or_default(),
    },
    Column { name: "file id", shown: false, cell: |row| row.job.file_id.to_string() },
    Column { name: "queue position", shown: false, cell: |row| row.job.queue_position.to_string() },
    Column { name: "queue size", shown: false, cell: |row| row.job.queue_size.to_string() },
    Column { name: "organization id", shown: false, cell: |row| row.job.organization_id.to_string() },
    Column { name: "initiator id", shown: false, cell: |row| row.job.initiator_id.to_string() },
    Column { name: "template version id", shown: false, cell: |row| id(row.job.input.template_version_id) },
    Column { name: "workspace build id", shown: false, cell: |row| id(row.job.input.workspace_build_id) },
    Column { name: "available workers", shown: false, cell: workers },
    Column {
        name: "template version name",
        shown: false,
        cell: |row| row.job.metadata.template_version_name.clone(),
    },
    Column { name: "template id", shown: false, cell: |row| id(row.job.metadata.template_id) },
    Column { name: "template name", shown: false, cell: |row| row.job.metadata.template_name.clone() },
    Column { name: "template icon", shown: false, cell: |row| row.job.metadata.template_icon.clone() },
    Column { name: "workspace id", shown: false, cell: |row| id(row.job.metadata.workspace_id) },
    Column { name: "workspace name", shown: false, cell: |row| row.job.metadata.workspace_name.clone() },
    Column { name: "organization", shown: false, cell: |row| row.organization_name.clone() },
];

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
        Some(user) => Some(client.user(user).await?.id),
        None => None,
    };
    let filter =
        JobFilter { limit: Some(args.limit), status: args.status, initiator, ..JobFilter::default() };
    let jobs = client.jobs(organization.id, &filter).await?;
    let reasons = if args.explain { reasons(&client, &jobs).await? } else { vec![None; jobs.len()] };
    let row = |(job, reasons)| Row { job, organization_name: organization.name.clone(), reasons };
    let mut rows: Vec<Row> = jobs.into_iter().zip(reasons).map(row).collect();
    oldest_first(&mut rows);
    table::print(&ctx.printer, &args.table, COLUMNS, &rows, "There are no provisioner jobs.")?;
    if args.table.format == table::Format::Table {
        rows.iter().flat_map(explained).for_each(|line| ctx.printer.data(&line));
    }
    Ok(())
}

/// The server sends the newest first; what runs or waits now stands at the end, next to the prompt.
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
        lines.push(format!("  {}: {}", plain(&reason.code), plain(&reason.message)));
        lines.push(format!("    next: {}", plain(&reason.next_step)));
    }
    lines
}

/// The server's words, which must not steer a terminal.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

async fn cancel(ctx: &Context, args: CancelArgs) -> anyhow::Result<()> {
    let client = remote::connect(ctx)?;
    let organization = remote::organization(ctx, &client, args.organization.org.as_deref()).await?;
    let job = client.job(organization.id, args.job).await?;
    client.cancel_job(&job).await?;
    ctx.printer.note("The job was asked to end.");
    Ok(())
}
