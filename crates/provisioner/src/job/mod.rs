//! One job from its acquisition to the acknowledged report of its end (wire-protocol 5.3–5.13).

mod build;
mod dry_run;
mod import;
pub(crate) mod orphans;
mod outcome;
pub(crate) mod program_report;
mod report;
pub(crate) mod reporter;
pub(crate) mod salvage;
mod secrets;
pub(crate) mod workdir;

use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use coder_domain::clock::Clock;
use coder_tfprovider::ProviderServer;
use coder_wire::messages::provisioner as sdk;
use coder_wire::messages::provisionerd as pb;
use futures_util::FutureExt as _;
use pb::acquired_job::Type;

use self::outcome::{JobFailure, JobResult};
use self::salvage::SalvagedState;
use crate::cancel::{Cancel, Shutdown, Stop, Urgency};
use crate::connection::held_jobs::{JobEnd, RunningJob};
use crate::connection::{CallError, ConnectionHandle, JobClient};
use crate::files::file_cache::FileCache;
use crate::isolation::{IsolationLevel, SandboxConfig};
use crate::job::program_report::ProgramReport;
use crate::job::reporter::{Reporter, UpdateSchedule};
use crate::job::workdir::WorkDir;
use crate::local_agents::LocalAgents;
use crate::metrics::Metrics;
use crate::output::mask::Secrets;
use crate::terraform::binary::Finder;
use crate::terraform::cache::TerraformCache;
use crate::terraform::command::environment::Environment;
use crate::terraform::journal::Journal;
use crate::terraform::steps::{Steps, Tools};

const PROVISIONER: &str = "terraform";

/// What all jobs of a daemon share.
pub(crate) struct JobContext {
    pub(crate) finder: Arc<Finder>,
    pub(crate) environment: Environment,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) work_dir: PathBuf,
    pub(crate) cache: TerraformCache,
    pub(crate) files: FileCache,
    pub(crate) schedule: UpdateSchedule,
    pub(crate) metrics: Metrics,
    /// A canceled job that does not end is aborted after this time.
    pub(crate) force_cancel_after: Duration,
    /// An interrupted Terraform is killed after this time.
    pub(crate) exit_timeout: Duration,
    /// First delay before `init` is retried.
    pub(crate) init_retry: Duration,
    /// How jobs are isolated.
    pub(crate) sandbox_config: SandboxConfig,
    /// The provider of a daemon that runs agents on this machine; `None` for the one that the other daemons share.
    pub(crate) provider: Option<ProviderServer>,
    /// The agents that run on this machine, when the daemon permits that.
    pub(crate) local_agents: Option<LocalAgents>,
    /// Jobs are logged at debug level only: the server that has this daemon inside logs them itself.
    pub(crate) built_in: bool,
}

impl JobContext {
    /// Logs the beginning of a job.
    pub(crate) fn log_start(&self, job: &pb::AcquiredJob) {
        let (job_id, kind, initiator) = (&job.job_id, kind(job), &job.user_name);
        if self.built_in {
            tracing::debug!(target: "provisioner", %job_id, kind, %initiator, "job started");
        } else {
            tracing::info!(target: "provisioner", %job_id, kind, %initiator, "job started");
        }
    }

    /// Logs the end of a job, with its error if it failed.
    fn log_end(&self, job_id: &str, took: Duration, error: Option<&str>) {
        let took = format!("{:.1}s", took.as_secs_f64());
        match (self.built_in, error) {
            (true, error) => tracing::debug!(target: "provisioner", job_id, %took, error, "job ended"),
            (false, None) => tracing::info!(target: "provisioner", job_id, %took, "job succeeded"),
            (false, Some(error)) => tracing::info!(target: "provisioner", job_id, %took, error, "job failed"),
        }
    }
}

/// The kind of a job, as the server's API names it.
fn kind(job: &pb::AcquiredJob) -> &'static str {
    match job.r#type {
        Some(Type::WorkspaceBuild(_)) => "workspace_build",
        Some(Type::TemplateImport(_)) => "template_version_import",
        Some(Type::TemplateDryRun(_)) => "template_version_dry_run",
        None => "unknown",
    }
}

/// What the phases of a running job work with.
struct PhaseContext<'a> {
    steps: Steps<'a>,
    reporter: &'a Reporter,
    client: &'a JobClient,
    cancel: &'a Cancel,
    job_id: &'a str,
    files: &'a FileCache,
    clock: &'a dyn Clock,
}

impl PhaseContext<'_> {
    /// Makes a call between two steps; a cancel of the job interrupts it.
    async fn unless_canceled<T>(
        &self,
        call: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        tokio::select! {
            result = call => result,
            () = self.cancel.reached(Urgency::Graceful) => Err(CallError::Refused("the job was canceled".to_owned())),
        }
    }

    /// Downloads the modules that the server keeps for the version: those of the import, or those of a bundle.
    /// An official server has them for builds only.
    async fn module_files(&self, metadata: &sdk::Metadata) -> Result<Option<Bytes>, String> {
        let file_id = metadata.template_version_modules_file.as_str();
        if file_id.is_empty() {
            return Ok(None);
        }
        let Ok(id) = uuid::Uuid::parse_str(file_id) else {
            return Err(format!("the template's modules file {file_id:?} is not a UUID"));
        };
        let downloading = async {
            let now = SystemTime::from(self.clock.now());
            let _lock = self.files.lock_download(id).await;
            if let Some(kept) = self.files.find(id, now).await {
                return Ok(kept);
            }
            let files = self.client.download_modules(file_id).await?;
            self.files.store(id, files.clone(), now).await;
            Ok(files)
        };
        match self.unless_canceled(downloading).await {
            Ok(files) => Ok(Some(files)),
            Err(error) => Err(format!("download the template's modules: {error}")),
        }
    }
}

/// Reports of a running job besides its log.
struct JobReports {
    journal: Journal,
    program: ProgramReport,
}

/// Why a job was aborted before it could end by itself.
enum AbortReason {
    CancelTimedOut,
    Shutdown,
}

/// How a job's steps ended.
struct WorkOutcome {
    result: Result<JobResult, JobFailure>,
    /// The state on disk, until the server has it.
    salvaged: Option<SalvagedState>,
}

impl From<JobFailure> for WorkOutcome {
    fn from(failure: JobFailure) -> Self {
        Self { result: Err(failure), salvaged: None }
    }
}

/// Runs a job and reports how it ended. A job cannot crash the daemon.
pub(crate) async fn run(
    context: &JobContext,
    client: &ConnectionHandle,
    running_job: &RunningJob,
    job: pb::AcquiredJob,
    cancel: Cancel,
    shutdown: &Shutdown,
) {
    let hold = &running_job.hold;
    let client = JobClient::new(client.clone(), Arc::clone(hold));
    let job_id = client.job_id();
    if job.provisioner != PROVISIONER {
        let reason =
            format!("this daemon has no provisioner of type {:?}, only {PROVISIONER:?}", job.provisioner);
        report::fail_now(&client, shutdown, &reason).await;
        return;
    }
    let began = Instant::now();
    let measured = context.metrics.started(&job);
    let secrets = Secrets::default();
    secrets.add(secrets::of_job(&job).into_iter().chain(context.environment.secrets()));
    let (reporter, reporter_task) = Reporter::start(
        client.clone(),
        cancel.clone(),
        context.schedule,
        Arc::clone(&context.clock),
        secrets.clone(),
    );
    let reports =
        JobReports { journal: Journal::new(client.clone()), program: ProgramReport::new(client.clone()) };

    let working = run_steps(context, &client, job, &reporter, &cancel, &reports);
    let result = tokio::select! {
        result = AssertUnwindSafe(working).catch_unwind() => Ok(result.unwrap_or_else(|_| {
            JobFailure::from_message("internal error: the job's task panicked; see the daemon's log".to_owned()).into()
        })),
        aborted = wait_for_abort(context, &cancel, shutdown) => Err(aborted),
    };
    let WorkOutcome { result, salvaged } = match result {
        Ok(ended) => {
            reporter.stage("Cleaning Up").await;
            reporter.flush().await;
            reports.program.finish().await;
            ended
        }
        // No further updates after an abort (wire-protocol 5.11).
        Err(AbortReason::CancelTimedOut) => {
            reporter_task.abort();
            aborted("Cancel timed out", &reports.journal).into()
        }
        Err(AbortReason::Shutdown) => {
            reporter_task.abort();
            aborted("the provisioner daemon was shut down before the job ended", &reports.journal).into()
        }
    };
    drop(reporter);
    if reporter_task.await.is_err_and(|error| error.is_panic()) {
        tracing::error!(%job_id, "the job's reporter panicked");
    }
    // The daemon's own failure explains more than its effect on Terraform. A job that succeeded nevertheless is
    // reported as such: its state must not be lost because of a failed heartbeat.
    let result = match cancel.reason() {
        Some(reason) => result.map_err(|failure| failure.because(reason)),
        None => result,
    };
    let result = result.map_err(|failure| failure.masked(&secrets.masker()));
    measured.ended(result.is_ok());
    context.log_end(job_id, began.elapsed(), result.as_ref().err().map(JobFailure::message));
    let state = outcome::state_of(&result);
    let is_reported = hold.end_reason().is_some() || report::report(&client, shutdown, result).await;
    match salvaged {
        Some(salvaged) => settle_state(&client, salvaged, is_reported).await,
        None if !is_reported && !state.is_empty() => {
            keep_state(&client, context.work_dir.clone(), state).await
        }
        None => {}
    }
}

/// Removes the state on disk when the server has it; otherwise sends it or keeps it.
async fn settle_state(client: &JobClient, salvaged: SalvagedState, is_reported: bool) {
    let (job_id, state) = (client.job_id(), salvaged.state.path());
    if matches!(client.hold().end_reason(), Some(JobEnd::Lost(_))) {
        tracing::warn!(%job_id, state = %state.display(), "the server no longer holds the job; its state is kept here for a week");
        client.salvage_all(salvaged).await;
    } else if is_reported {
        salvaged.remove().await;
    } else {
        tracing::warn!(%job_id, state = %state.display(), "the job's state could not be reported; it is kept for a week");
    }
}

/// Stores a state that could not be reported, for a later process of this daemon.
async fn keep_state(client: &JobClient, work_dir: PathBuf, state: Bytes) {
    let job_id = client.job_id();
    match tokio::task::spawn_blocking(move || workdir::keep_state(&work_dir, &state)).await {
        Ok(Ok(salvaged)) => {
            tracing::warn!(%job_id, state = %salvaged.state.path().display(), "the job's state could not be reported; it is kept for a week");
            client.hold().set_record_file(salvaged.record);
        }
        Ok(Err(error)) => {
            tracing::error!(%job_id, %error, "the job's state could neither be reported nor kept")
        }
        Err(error) => tracing::error!(%job_id, %error, "keeping the job's state failed"),
    }
}

/// The failure of an aborted job, with its latest known state.
fn aborted(message: &str, journal: &Journal) -> JobFailure {
    match journal.newest() {
        Some(state) => {
            let build = pb::failed_job::WorkspaceBuild { state, timings: Vec::new() };
            JobFailure::of_build(message.to_owned(), build)
        }
        None => JobFailure::from_message(message.to_owned()),
    }
}

async fn wait_for_abort(context: &JobContext, cancel: &Cancel, shutdown: &Shutdown) -> AbortReason {
    let forwarded = async {
        shutdown.reached(Stop::Cancel).await;
        cancel.request(Urgency::Graceful);
        std::future::pending::<()>().await;
    };
    let timed_out = async {
        cancel.reached(Urgency::Graceful).await;
        tokio::time::sleep(context.force_cancel_after).await;
    };
    tokio::select! {
        () = forwarded => AbortReason::Shutdown,
        () = timed_out => AbortReason::CancelTimedOut,
        () = shutdown.reached(Stop::Force) => AbortReason::Shutdown,
    }
}

async fn run_steps(
    context: &JobContext,
    client: &JobClient,
    job: pb::AcquiredJob,
    reporter: &Reporter,
    cancel: &Cancel,
    reports: &JobReports,
) -> WorkOutcome {
    reporter.stage("Setting up").await;
    let Some(kind) = job.r#type else {
        return JobFailure::from_message("the job has no type; the server sent an incomplete job".to_owned())
            .into();
    };
    let (parent, now) = (context.work_dir.clone(), SystemTime::from(context.clock.now()));
    let home = context.sandbox_config.home.clone();
    let made = tokio::task::spawn_blocking(move || {
        let work_dir = WorkDir::create(&parent, now)?;
        home.create(work_dir.root())?;
        Ok::<_, std::io::Error>(work_dir)
    })
    .await;
    let work_dir = match made {
        Ok(Ok(dir)) => dir,
        Ok(Err(error)) => {
            return JobFailure::from_message(format!("create the job's directory: {error}")).into();
        }
        Err(error) => return JobFailure::from_message(format!("internal error: {error}")).into(),
    };
    // Dropped after the directory: by then all processes of the job have ended.
    let groups = match context.sandbox_config.limits.create_groups() {
        Ok(groups) => groups,
        Err(error) => return JobFailure::from_message(format!("limit the job: {error}")).into(),
    };
    let tools = Tools {
        finder: &context.finder,
        environment: &context.environment,
        clock: &*context.clock,
        cache: &context.cache,
        exit_timeout: context.exit_timeout,
        journal: &reports.journal,
        program: &reports.program,
        init_retry: context.init_retry,
        sandbox_config: &context.sandbox_config,
        groups: &groups,
        provider: context.provider.as_ref(),
    };
    client.hold().set_record_file(work_dir.record_file());
    let log_level = match &kind {
        Type::WorkspaceBuild(build) => build.log_level.as_str(),
        _ => "",
    };
    let steps = Steps::new(tools, &work_dir, reporter, cancel, log_level);
    let (files, clock) = (&context.files, &*context.clock);
    let phase = PhaseContext { steps, reporter, client, cancel, job_id: &job.job_id, files, clock };
    let result = match &kind {
        Type::TemplateImport(import) => import::run(phase, import, job.template_source_archive).await,
        Type::TemplateDryRun(dry_run) => {
            dry_run::run(phase, dry_run, &job.user_name, job.template_source_archive).await
        }
        Type::WorkspaceBuild(build) => {
            let result = build::run(phase, build, job.template_source_archive).await;
            let metadata = build.metadata.as_ref().filter(|metadata| {
                result.is_ok() && metadata.workspace_transition() == sdk::WorkspaceTransition::Destroy
            });
            let deleted = metadata.and_then(|metadata| metadata.workspace_id.parse().ok());
            if let (Some(agents), Some(workspace)) = (&context.local_agents, deleted) {
                agents.remove_files(workspace).await;
            }
            result
        }
    };
    // Until the server acknowledges the result, this may be the only copy of the state. Removing many files
    // takes a while, so it leaves the async threads.
    let no_orphans = context.sandbox_config.support.level == IsolationLevel::Full;
    let salvaged = tokio::task::spawn_blocking(move || work_dir.finish(no_orphans)).await.ok().flatten();
    if let Some(salvaged) = &salvaged {
        client.hold().set_record_file(salvaged.record.clone());
    }
    WorkOutcome { result, salvaged }
}

fn metadata_of(metadata: Option<&sdk::Metadata>) -> Result<&sdk::Metadata, JobFailure> {
    metadata.ok_or_else(|| {
        JobFailure::from_message("the job has no metadata; the server sent an incomplete job".to_owned())
    })
}
