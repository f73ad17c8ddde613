//! The daemon: keeps a connection to a server, runs jobs in its slots, and shuts down in order.

pub(crate) mod config;
pub(crate) mod health;
pub mod http;
pub(crate) mod peers;
pub(crate) mod slot;
pub(crate) mod status;

use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::{Clock, SystemClock};
use coder_tfprovider::ProviderServer;
use coder_wire::extension;
use rustix::fs::{Access, access};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::config::{Config, RunError};
use self::slot::Slot;
use self::status::{Status, StatusHandle};
use crate::cancel::{Shutdown, Stop};
use crate::connection::dialer::{Connector, Dialer};
use crate::connection::held_jobs::HeldJobs;
use crate::connection::{ConnectionHandle, RetryPolicy};
use crate::files::cache_dir::{self, CacheError};
use crate::files::file_cache::FileCache;
use crate::isolation::{IsolationLevel, IsolationMode, IsolationSupport, SandboxConfig};
use crate::job::JobContext;
use crate::job::reporter::UpdateSchedule;
use crate::job::salvage;
use crate::job::workdir::WorkDirClaim;
use crate::local_agents::LocalAgents;
use crate::metrics::Metrics;
use crate::terraform::binary::required::TemplateRequirements;
use crate::terraform::binary::{Binary, BinaryError, Finder};
use crate::terraform::cache::TerraformCache;
use crate::terraform::cache::seal;
use crate::terraform::command::environment::Environment;
use crate::terraform::install::{InstallProgress, Installer};

/// The longest delay between two attempts to find or install Terraform.
const MAX_TERRAFORM_RETRY: Duration = Duration::from_secs(60);

/// A provisioner daemon.
pub struct Daemon {
    config: Config,
    connector: Arc<dyn Connector>,
    contexts: Vec<JobContext>,
    status: watch::Sender<Status>,
    metrics: Metrics,
    sandbox_config: SandboxConfig,
    local_agents: Option<LocalAgents>,
}

impl Daemon {
    pub fn new(mut config: Config, connector: impl Connector) -> Self {
        // Jobs see the canonical path: replacing a link in it later has no effect.
        config.cache_dir = cache_dir::resolve(&config.cache_dir);
        let mut environment = Environment::of_daemon();
        if let Some(allowed) = &config.job_environment {
            environment.narrow(allowed);
        }
        let slots = config.slots.clamp(1, extension::MAX_SLOTS);
        let metrics = Metrics::new();
        let sandbox_config = peers::sandbox_config(&config, &environment);
        environment.set_home(sandbox_config.home.clone());
        let installer = config.install.clone().map(Installer::new);
        let finder = Arc::new(Finder::new(config.terraform.clone(), installer));
        let files = FileCache::new(config.file_cache.clone(), config.file_cache_bytes);
        let local_agents = config.local_agents.clone().map(|program| {
            let dir = config.cache_dir.join("workspaces");
            LocalAgents::new(program, dir, &environment, sandbox_config.clone())
        });
        let provider = local_agents.clone().map(|agents| ProviderServer::with_local_agents(Arc::new(agents)));
        let mut contexts: Vec<_> = (0..slots)
            .map(|_| context(&config, &environment, &metrics, &finder, &sandbox_config, &files))
            .collect();
        for context in &mut contexts {
            context.provider.clone_from(&provider);
            context.local_agents.clone_from(&local_agents);
        }
        let status = watch::Sender::new(Status {
            slots,
            isolation: sandbox_config.support.level,
            limits: sandbox_config.limits.descriptions.clone(),
            ..Status::default()
        });
        let connector = Arc::new(connector);
        Self { config, connector, contexts, status, metrics, sandbox_config, local_agents }
    }

    /// Replaces the source of time for logs and timings.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        for context in &mut self.contexts {
            context.clock = Arc::clone(&clock);
        }
        self
    }

    /// Counts into metrics that several daemons of this process share.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &Metrics) -> Self {
        for context in &mut self.contexts {
            context.metrics = metrics.clone();
        }
        self.metrics = metrics.clone();
        self
    }

    /// The daemon's status; also valid after the start.
    pub fn status(&self) -> StatusHandle {
        StatusHandle::new(self.status.subscribe(), self.metrics.clone())
    }

    /// Looks for Terraform, so that a start can fail early. The daemon looks again by itself.
    ///
    /// # Errors
    /// No Terraform was found, or none that is new enough; the message says what to do.
    pub async fn check_terraform(&self) -> Result<Binary, BinaryError> {
        let context = self.contexts.first().expect("a daemon has at least one slot");
        context
            .finder
            .find(&context.environment, &TemplateRequirements::default(), &InstallProgress::silent())
            .await
    }

    /// Runs until it is stopped. Dropping the future kills what runs.
    ///
    /// # Errors
    /// The server permanently refuses this daemon, or no job can run on this machine.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), RunError> {
        let pairs = self.config.tags.iter().map(|(key, value)| format!("{key}={value}"));
        let tags = pairs.collect::<Vec<_>>().join(" ");
        tracing::info!(target: "provisioner", name = %self.config.name, %tags, "starting provisioner daemon");
        self.log_isolation()?;
        peers::log_hidden_home_files(&self.sandbox_config.home);
        if let Some(path) = self.contexts.first().and_then(|context| context.environment.missing_config()) {
            tracing::warn!(
                target: "provisioner",
                path = %path.display(),
                "TF_CLI_CONFIG_FILE names a file that does not exist; Terraform runs without one"
            );
        }
        let temporary = std::env::temp_dir();
        if let Err(error) = access(&temporary, Access::WRITE_OK | Access::EXEC_OK) {
            // Terraform's own message names neither the directory nor the variable.
            tracing::warn!(target: "provisioner", dir = %temporary.display(), %error, "providers cannot start: let TMPDIR name a directory that the daemon's user may write to");
        }
        let first = self.contexts.first().expect("a daemon has at least one slot");
        let (finder, environment) = (Arc::clone(&first.finder), first.environment.clone());
        let schedule = health::CheckIntervals {
            retry: self.config.terraform_retry,
            longest_retry: MAX_TERRAFORM_RETRY.max(self.config.terraform_retry),
            check: self.config.terraform_check,
        };
        let status = self.status.clone();
        let health_checks = health::check_forever(&finder, &environment, schedule, &status);
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
            salvage::salvage_all(&link, salvaged).await;
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
            // The running jobs learn that there will be no further connection; Terraform is interrupted, not
            // killed.
            tokio::select! {
                () = finish(&mut slots) => {}
                () = shutdown.reached(Stop::Kill) => {}
            }
        }
        // Has an effect only for a kill: aborts what still runs.
        slots.shutdown().await;
        if let Some(agents) = &self.local_agents {
            tokio::select! {
                () = agents.stop_all() => {}
                () = shutdown.reached(Stop::Kill) => {}
            }
        }
        tracing::info!(target: "provisioner", "closing provisionerd");
        let connection = receiver.borrow().clone();
        if let Some(connection) = connection {
            connection.client().session().close().await;
        }
        self.status.send_modify(|status| status.connected = false);
        refused.map_or(Ok(()), |error| Err(RunError::Refused(error)))
    }

    /// Logs the isolation level; fails when [`IsolationMode::Required`] is not met.
    fn log_isolation(&self) -> Result<(), RunError> {
        let IsolationSupport { level, reason, .. } = &self.sandbox_config.support;
        let reason = reason.as_deref().unwrap_or("this system has no namespaces");
        match (self.config.isolation, level) {
            (IsolationMode::Required, IsolationLevel::None) => {
                return Err(RunError::NotIsolated(reason.to_owned()));
            }
            (IsolationMode::None, _) => {
                tracing::warn!(target: "provisioner", isolation = %level, "jobs are not isolated, because of --job-isolation=none");
            }
            (_, IsolationLevel::None) => {
                tracing::warn!(target: "provisioner", isolation = %level, %reason, "jobs are not isolated: they can read what the daemon's user can");
            }
            _ if self.config.built_in => {
                tracing::debug!(target: "provisioner", isolation = %level, "jobs are isolated")
            }
            (_, IsolationLevel::Directories) => {
                tracing::info!(target: "provisioner", isolation = %level, %reason, "jobs are isolated, but see other processes");
            }
            (_, IsolationLevel::Full) => {
                tracing::info!(target: "provisioner", isolation = %level, "jobs are isolated")
            }
        }
        for limit in &self.status.borrow().limits {
            tracing::info!(target: "provisioner", limit = %limit, "jobs are limited");
        }
        Ok(())
    }

    /// Locks the work directory against other daemons, and cleans up after killed ones.
    async fn claim_work_dir(&self) -> Result<Option<WorkDirClaim>, RunError> {
        let (dir, work) = (self.config.cache_dir.clone(), self.config.cache_dir.join("work"));
        let local_agents = self.local_agents.clone();
        let files = self.contexts.first().map(|context| context.files.clone());
        let shown = work.display().to_string();
        let (isolation, sandbox_config) = (self.config.isolation, self.sandbox_config.clone());
        let claiming = tokio::task::spawn_blocking(move || {
            cache_dir::prepare(&dir)?;
            if let Some(Err(error)) = files.map(|files| files.prepare()) {
                tracing::warn!(target: "provisioner", %error, "downloads cannot be cached for later jobs");
            }
            let is_new = peers::register(isolation, &sandbox_config)?;
            if is_new {
                // A process that could write to the directory before may have read the key.
                seal::forget_key(&dir).map_err(|reason| CacheError { dir, reason })?;
            }
            let claim = WorkDirClaim::take(&work).map_err(|reason| CacheError { dir: work, reason })?;
            if let (Some(_), Some(agents)) = (&claim, local_agents) {
                agents.end_orphans();
            }
            Ok((claim, is_new))
        });
        match claiming.await {
            Ok(Ok((claim, is_new))) => {
                if claim.is_none() {
                    tracing::warn!(target: "provisioner", dir = %shown, "another daemon uses this cache directory; give each its own");
                }
                if is_new {
                    peers::wait_for_jobs_of_peers(self.config.isolation, &self.sandbox_config).await;
                }
                Ok(claim)
            }
            Ok(Err(error)) => Err(error),
            Err(error) => {
                tracing::error!(target: "provisioner", %error, "the cleanup of the work directory failed");
                Ok(None)
            }
        }
    }
}

/// Waits until all slots have ended.
async fn finish(slots: &mut JoinSet<()>) {
    while let Some(ended) = slots.join_next().await {
        if let Err(error) = ended {
            tracing::error!(target: "provisioner", %error, "a slot of the daemon panicked");
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
        schedule: UpdateSchedule {
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
        provider: None,
        local_agents: None,
        built_in: config.built_in,
    }
}
