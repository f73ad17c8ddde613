//! The daemon: it stays connected to a server, runs jobs in its slots, and ends in good order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::{Clock, SystemClock};
use coder_wire::extension;
use rustix::fs::{Access, access};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::acquire::Slot;
use crate::cache_dir::{self, CacheError};
use crate::cancel::{Shutdown, Stop};
use crate::connect::{Connector, Dialer};
use crate::hand::HeldJobs;
use crate::health;
use crate::isolation::{IsolationLevel, IsolationMode, IsolationSupport, JobLimits, SandboxConfig};
use crate::job::JobContext;
use crate::join::ConnectError;
use crate::kept_files::{self, FileCache};
use crate::left;
use crate::logs::Pace;
use crate::metrics::Metrics;
use crate::neighbours;
use crate::session::{ConnectionHandle, RetryPolicy};
use crate::status::{Status, StatusHandle};
use crate::terraform::binary::required::TemplateRequirements;
use crate::terraform::binary::{Binary, BinaryError, Finder, TerraformSource};
use crate::terraform::cache::TerraformCache;
use crate::terraform::environment::Environment;
use crate::terraform::install::{InstallConfig, InstallProgress, Installer};
use crate::terraform::seal;
use crate::workdir::WorkDirClaim;

/// The longest time between two attempts to find or install a program that can run jobs.
const MAX_TERRAFORM_RETRY: Duration = Duration::from_secs(60);

/// How a daemon works.
#[derive(Debug, Clone)]
pub struct Config {
    /// For its own log; the server learns it from the join request.
    pub name: String,
    /// For its own log; the server learns them from the join request.
    pub tags: BTreeMap<String, String>,
    /// Jobs at a time, 1 to 256.
    pub slots: usize,
    /// Run one job, then end as after [`Shutdown::drain`].
    pub once: bool,
    /// Runs inside a server, whose own log says that it is there: connections are mentioned at debug level only.
    pub built_in: bool,
    /// Directory of its own: plugins are kept here, and jobs run in `work` below it.
    pub cache_dir: PathBuf,
    pub terraform: TerraformSource,
    /// What to do when nothing there can run a template; none for nothing.
    pub install: Option<InstallConfig>,
    /// Heartbeats of a job: 500 ms for an external daemon, 1 s for one inside the server (wire-protocol 5.5).
    pub update_interval: Duration,
    /// One update may take this long, repetitions included, while connected.
    pub update_timeout: Duration,
    /// A job is given up after this time without a connection; below the five minutes after which servers give it up.
    pub lost_contact_after: Duration,
    /// A canceled job that does not end is given up after this time.
    pub force_cancel_after: Duration,
    /// An interrupted Terraform is killed after this time.
    pub exit_timeout: Duration,
    /// Time before a program that can run jobs is looked for again, or one is installed, after none was found; it grows to
    /// a minute.
    pub terraform_retry: Duration,
    /// Time after which it is looked whether the program is still there.
    pub terraform_check: Duration,
    /// Time before a failed `init` is run again; it grows threefold each time.
    pub init_retry: Duration,
    /// Names of variables that jobs inherit from the daemon, `*` at the end for any ending; none for all but `CODER_*`.
    /// What programs need to run at all (`PATH`, `HOME`, `TMPDIR`, the locale) is always inherited.
    pub job_environment: Option<Vec<String>>,
    /// Whether jobs are kept apart from the daemon and from each other (docs/isolation.md).
    pub isolation: IsolationMode,
    /// Files and directories that no job may see, beside what the daemon itself hides.
    pub hidden: Vec<PathBuf>,
    /// What jobs see, read-only, of the daemon's home directory: paths below it. Files that the environment names are seen
    /// anyway.
    pub home: Vec<PathBuf>,
    /// Where the daemons of this user write down what their jobs must not see; none for the usual place of the user.
    pub registry: Option<PathBuf>,
    /// What a job may use of the machine.
    pub limits: JobLimits,
    /// Where files of the server are kept for later jobs; daemons of one server may share it.
    pub file_cache: PathBuf,
    /// Most bytes of such files; 0 keeps none.
    pub file_cache_bytes: u64,
}

impl Config {
    /// The settings of an external daemon.
    pub fn new(name: impl Into<String>, cache_dir: impl Into<PathBuf>) -> Self {
        let cache_dir = cache_dir.into();
        Self {
            file_cache: cache_dir.join("files"),
            file_cache_bytes: kept_files::DEFAULT_BYTES,
            name: name.into(),
            tags: BTreeMap::new(),
            slots: 1,
            once: false,
            built_in: false,
            cache_dir,
            terraform: TerraformSource::SearchPath,
            install: None,
            update_interval: Duration::from_millis(500),
            update_timeout: Duration::from_secs(30),
            lost_contact_after: Duration::from_secs(240),
            force_cancel_after: Duration::from_secs(600),
            exit_timeout: Duration::from_secs(180),
            terraform_retry: Duration::from_secs(1),
            terraform_check: Duration::from_secs(30),
            init_retry: Duration::from_secs(1),
            job_environment: None,
            isolation: IsolationMode::Auto,
            hidden: Vec::new(),
            home: Vec::new(),
            registry: None,
            limits: JobLimits::default(),
        }
    }
}

/// Why a daemon ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The server will never let this daemon in with this credential; starting again as it is cannot help.
    #[error(transparent)]
    Refused(#[from] ConnectError),
    /// Jobs cannot be kept apart on this machine, and [`IsolationMode::Required`] was asked for.
    #[error("jobs cannot be kept apart here, as --job-isolation=required asks for: {0}")]
    NotIsolated(String),
    /// Other daemons of this user cannot be kept from this one's directories, and [`IsolationMode::Required`] was asked for.
    #[error(
        "daemons of this user cannot be kept apart, as --job-isolation=required asks for: {0}; remove what is there, or name a directory that only this user can write to (--daemon-registry)"
    )]
    Registry(String),
    /// No job could run: the cache directory cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// A provisioner daemon.
pub struct Daemon {
    config: Config,
    connector: Arc<dyn Connector>,
    contexts: Vec<JobContext>,
    status: watch::Sender<Status>,
    metrics: Metrics,
    sandbox_config: SandboxConfig,
}

impl Daemon {
    pub fn new(mut config: Config, connector: impl Connector) -> Self {
        // Jobs know it by the path that the kernel has for it, which no link that is put elsewhere changes.
        config.cache_dir = cache_dir::resolve(&config.cache_dir);
        let mut environment = Environment::of_daemon();
        if let Some(allowed) = &config.job_environment {
            environment.narrow(allowed);
        }
        let slots = config.slots.clamp(1, extension::MAX_SLOTS);
        let metrics = Metrics::new();
        let sandbox_config = neighbours::sandbox_config(&config, &environment);
        environment.set_home(sandbox_config.home.clone());
        let installer = config.install.clone().map(Installer::new);
        let finder = Arc::new(Finder::new(config.terraform.clone(), installer));
        let files = FileCache::new(config.file_cache.clone(), config.file_cache_bytes);
        let contexts = (0..slots)
            .map(|_| context(&config, &environment, &metrics, &finder, &sandbox_config, &files))
            .collect();
        let status = watch::Sender::new(Status {
            slots,
            isolation: sandbox_config.support.level,
            limits: sandbox_config.limits.descriptions.clone(),
            ..Status::default()
        });
        Self { config, connector: Arc::new(connector), contexts, status, metrics, sandbox_config }
    }

    /// With another source of time for logs and timings.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        for context in &mut self.contexts {
            context.clock = Arc::clone(&clock);
        }
        self
    }

    /// Counted together with others in this process, which tells the counts itself.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        for context in &mut self.contexts {
            context.metrics = metrics.clone();
        }
        self.metrics = metrics.clone();
        self
    }

    /// What it is doing, also after it has been started.
    pub fn status(&self) -> StatusHandle {
        StatusHandle::new(self.status.subscribe(), self.metrics.clone())
    }

    /// Looks for Terraform, for a start that fails early. The daemon looks again.
    ///
    /// # Errors
    /// When there is none, or none that is new enough; the text says what to do.
    pub async fn check_terraform(&self) -> Result<Binary, BinaryError> {
        let context = self.contexts.first().expect("a daemon has at least one slot");
        context
            .finder
            .find(&context.environment, &TemplateRequirements::default(), &InstallProgress::silent())
            .await
    }

    /// Serves until it is stopped. Dropping the future kills what runs.
    ///
    /// # Errors
    /// When the server will never let this daemon in, or no job could run here.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), RunError> {
        tracing::info!(target: "provisioner", name = %self.config.name, tags = ?self.config.tags, "starting provisioner daemon");
        self.log_isolation()?;
        neighbours::log_hidden_home_files(&self.sandbox_config.home);
        if let Some(path) = self.contexts.first().and_then(|context| context.environment.missing_config()) {
            tracing::warn!(
                target: "provisioner",
                path = %path.display(),
                "TF_CLI_CONFIG_FILE names a file that does not exist; Terraform runs without one"
            );
        }
        let temporary = std::env::temp_dir();
        if let Err(error) = access(&temporary, Access::WRITE_OK | Access::EXEC_OK) {
            // Terraform's own words about that name neither the directory nor the variable.
            tracing::warn!(target: "provisioner", dir = %temporary.display(), %error, "providers cannot start: let TMPDIR name a directory that the daemon's user may write to");
        }
        let first = self.contexts.first().expect("a daemon has at least one slot");
        let (finder, environment) = (Arc::clone(&first.finder), first.environment.clone());
        let schedule = health::Pace {
            retry: self.config.terraform_retry,
            longest_retry: MAX_TERRAFORM_RETRY.max(self.config.terraform_retry),
            check: self.config.terraform_check,
        };
        let status = self.status.clone();
        let health_checks = health::watch(&finder, &environment, schedule, &status);
        let mut claim = self.claim_work_dir().await?;
        let salvaged = claim.as_mut().map(|claim| std::mem::take(&mut claim.salvaged)).unwrap_or_default();

        let (current, receiver) = watch::channel(None);
        let held_jobs = Arc::new(HeldJobs::default());
        let link = ConnectionHandle::new(receiver.clone(), Arc::clone(&held_jobs));
        let mut slots = JoinSet::new();
        for context in std::mem::take(&mut self.contexts) {
            let slot = Slot {
                context,
                link: link.clone(),
                status: self.status.clone(),
                shutdown: shutdown.clone(),
                once: self.config.once,
            };
            slots.spawn(slot.run());
        }
        let dialling = Dialer {
            connector: &*self.connector,
            held_jobs,
            status: &self.status,
            shutdown: &shutdown,
            quiet: self.config.built_in,
        };
        let draining = async {
            shutdown.reached(Stop::Drain).await;
            self.status.send_modify(|status| status.draining = true);
            tracing::info!(target: "provisioner", "attempting graceful shutdown");
            shutdown.reached(Stop::Cancel).await;
            tracing::info!(target: "provisioner", "attempting graceful cancellation");
            shutdown.reached(Stop::Kill).await;
        };
        let salvaging = async {
            left::salvage_all(&link, salvaged).await;
            std::future::pending::<()>().await;
        };
        let refused = tokio::select! {
            () = finish(&mut slots) => None,
            refused = dialling.run(current) => Some(refused),
            () = draining => None,
            () = salvaging => None,
            never = health_checks => match never {},
        };
        if refused.is_some() {
            // Jobs in hand learn that there will be no other connection; Terraform is interrupted, not killed.
            tokio::select! {
                () = finish(&mut slots) => {}
                () = shutdown.reached(Stop::Kill) => {}
            }
        }
        // Without effect unless it is to end at once: what runs is killed.
        slots.shutdown().await;
        tracing::info!(target: "provisioner", "closing provisionerd");
        let connection = receiver.borrow().clone();
        if let Some(connection) = connection {
            connection.client().session().close().await;
        }
        self.status.send_modify(|status| status.connected = false);
        refused.map_or(Ok(()), |error| Err(RunError::Refused(error)))
    }

    /// Says what keeps jobs apart here; an error when that is too little.
    fn log_isolation(&self) -> Result<(), RunError> {
        let IsolationSupport { level, reason, .. } = &self.sandbox_config.support;
        let reason = reason.as_deref().unwrap_or("this system has no namespaces");
        match (self.config.isolation, level) {
            (IsolationMode::Required, IsolationLevel::None) => {
                return Err(RunError::NotIsolated(reason.to_owned()));
            }
            (IsolationMode::None, _) => {
                tracing::warn!(target: "provisioner", isolation = %level, "jobs are not kept apart, as --job-isolation=none asks for");
            }
            (_, IsolationLevel::None) => {
                tracing::warn!(target: "provisioner", isolation = %level, %reason, "jobs are not kept apart: they can read what the daemon's user can");
            }
            _ if self.config.built_in => {
                tracing::debug!(target: "provisioner", isolation = %level, "jobs are kept apart")
            }
            (_, IsolationLevel::Directories) => {
                tracing::info!(target: "provisioner", isolation = %level, %reason, "jobs are kept apart, but see the processes of others");
            }
            (_, IsolationLevel::Full) => {
                tracing::info!(target: "provisioner", isolation = %level, "jobs are kept apart")
            }
        }
        for limit in &self.status.borrow().limits {
            tracing::info!(target: "provisioner", limit = %limit, "jobs are limited");
        }
        Ok(())
    }

    /// Keeps other daemons out of the directory of jobs, and clears away what a killed one left there.
    async fn claim_work_dir(&self) -> Result<Option<WorkDirClaim>, RunError> {
        let (dir, work) = (self.config.cache_dir.clone(), self.config.cache_dir.join("work"));
        let files = self.contexts.first().map(|context| context.files.clone());
        let shown = work.display().to_string();
        let (isolation, sandbox_config) = (self.config.isolation, self.sandbox_config.clone());
        let claiming = tokio::task::spawn_blocking(move || {
            cache_dir::prepare(&dir)?;
            if let Some(Err(error)) = files.map(|files| files.prepare()) {
                tracing::warn!(target: "provisioner", %error, "nothing can be kept for later jobs in the cache directory");
            }
            let is_new = neighbours::register(isolation, &sandbox_config)?;
            if is_new {
                // Whoever wrote into it before may have seen the key.
                seal::forget_key(&dir).map_err(|reason| CacheError { dir, reason })?;
            }
            let claim = WorkDirClaim::take(&work).map_err(|reason| CacheError { dir: work, reason })?;
            Ok((claim, is_new))
        });
        match claiming.await {
            Ok(Ok((claim, is_new))) => {
                if claim.is_none() {
                    tracing::warn!(target: "provisioner", dir = %shown, "another daemon uses this cache directory; give each its own");
                }
                if is_new {
                    neighbours::wait_for_jobs_of_peers(self.config.isolation, &self.sandbox_config).await;
                }
                Ok(claim)
            }
            Ok(Err(error)) => Err(error),
            Err(error) => {
                tracing::error!(target: "provisioner", %error, "clearing the work directory failed");
                Ok(None)
            }
        }
    }
}

/// Waits for the end of all slots.
async fn finish(slots: &mut JoinSet<()>) {
    while let Some(ended) = slots.join_next().await {
        if let Err(error) = ended {
            tracing::error!(target: "provisioner", %error, "a slot of the daemon ended by a panic");
        }
    }
}

fn context(
    config: &Config,
    environment: &Environment,
    metrics: &Metrics,
    finder: &Arc<Finder>,
    sandbox_config: &SandboxConfig,
    files: &FileCache,
) -> JobContext {
    JobContext {
        files: files.clone(),
        metrics: metrics.clone(),
        finder: Arc::clone(finder),
        environment: environment.clone(),
        clock: Arc::new(SystemClock),
        work_dir: config.cache_dir.join("work"),
        cache: TerraformCache::open(&config.cache_dir),
        schedule: Pace {
            interval: config.update_interval,
            retry: RetryPolicy {
                connected: Some(config.update_timeout),
                disconnected: Some(config.lost_contact_after),
            },
        },
        force_cancel_after: config.force_cancel_after,
        exit_timeout: config.exit_timeout,
        init_retry: config.init_retry,
        sandbox_config: sandbox_config.clone(),
    }
}
