//! The daemon: it keeps a session with a server, takes jobs one after the other, and ends in good order.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use coder_domain::clock::{Clock, SystemClock};
use coder_wire::bytes::BoxedStream;
use coder_wire::daemon::Client;
use coder_wire::messages::provisionerd::AcquiredJob;
use coder_wire::mux;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cancel::{Shutdown, Stop};
use crate::job::{self, Workshop};
use crate::join::ConnectError;
use crate::logs::Pace;
use crate::session::{Backoff, CallError, Link, Patience};
use crate::status::{Status, StatusHandle};
use crate::terraform::binary::{Binary, BinaryError, Finder, TerraformSource};
use crate::terraform::environment::Environment;
use crate::workdir::Claim;

/// Attempts to connect (wire-protocol 1.7).
const FIRST_REDIAL: Duration = Duration::from_millis(81);
const LAST_REDIAL: Duration = Duration::from_secs(10);

/// Failed acquires (wire-protocol 5.1).
const FIRST_REACQUIRE: Duration = Duration::from_millis(16);
const LAST_REACQUIRE: Duration = Duration::from_secs(1);

/// A session that ends sooner does not reset the delay before the next one.
const STABLE_AFTER: Duration = Duration::from_secs(5);

/// How long a server may take to answer that an acquire is canceled.
const CANCEL_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// How a daemon works.
#[derive(Debug, Clone)]
pub struct Config {
    /// For its own log; the server learns it from the join request.
    pub name: String,
    /// For its own log; the server learns them from the join request.
    pub tags: BTreeMap<String, String>,
    /// Jobs at a time.
    pub slots: usize,
    /// Runs inside a server, whose own log says that it is there: connections are mentioned at debug level only.
    pub built_in: bool,
    /// Directory of its own: plugins are kept here, and jobs run in `work` below it.
    pub cache_dir: PathBuf,
    pub terraform: TerraformSource,
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
}

impl Config {
    /// The settings of an external daemon.
    pub fn new(name: impl Into<String>, cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            tags: BTreeMap::new(),
            slots: 1,
            built_in: false,
            cache_dir: cache_dir.into(),
            terraform: TerraformSource::SearchPath,
            update_interval: Duration::from_millis(500),
            update_timeout: Duration::from_secs(30),
            lost_contact_after: Duration::from_secs(240),
            force_cancel_after: Duration::from_secs(600),
            exit_timeout: Duration::from_secs(180),
        }
    }
}

/// What a [`Connector`] works on.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = Result<BoxedStream, ConnectError>> + Send + 'a>>;

/// Opens byte streams to a server that has already let the daemon in: a WebSocket after its 101, or a pipe inside
/// the server's own process.
pub trait Connector: Send + Sync + 'static {
    fn connect(&self) -> Connecting<'_>;
}

impl<F, Made> Connector for F
where
    F: Fn() -> Made + Send + Sync + 'static,
    Made: Future<Output = Result<BoxedStream, ConnectError>> + Send + 'static,
{
    fn connect(&self) -> Connecting<'_> {
        Box::pin(self())
    }
}

/// Why a daemon ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Refused(#[from] ConnectError),
}

/// A provisioner daemon.
pub struct Daemon {
    config: Config,
    connector: Arc<dyn Connector>,
    workshops: Vec<Workshop>,
    status: watch::Sender<Status>,
}

impl Daemon {
    pub fn new(config: Config, connector: impl Connector) -> Self {
        let environment = Environment::of_daemon();
        let workshops = (0..config.slots.max(1)).map(|slot| workshop(&config, &environment, slot)).collect();
        let status = watch::Sender::new(Status { slots: config.slots.max(1), ..Status::default() });
        Self { config, connector: Arc::new(connector), workshops, status }
    }

    /// With another source of time for logs and timings.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        for workshop in &mut self.workshops {
            workshop.clock = Arc::clone(&clock);
        }
        self
    }

    pub fn status(&self) -> StatusHandle {
        StatusHandle::new(self.status.subscribe())
    }

    /// Looks for Terraform, for a start that fails early. Jobs look again.
    ///
    /// # Errors
    /// When there is none, or none that is new enough; the text says what to do.
    pub async fn check_terraform(&self) -> Result<Binary, BinaryError> {
        let workshop = self.workshops.first().expect("a daemon has at least one slot");
        workshop.finder.find(&workshop.environment).await
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// When the server will never let this daemon in.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), RunError> {
        tracing::info!(target: "provisioner", name = %self.config.name, tags = ?self.config.tags, "starting provisioner daemon");
        if let Some(path) = self.workshops.first().and_then(|workshop| workshop.environment.missing_config())
        {
            tracing::warn!(
                target: "provisioner",
                path = %path.display(),
                "TF_CLI_CONFIG_FILE names a file that does not exist; Terraform runs without one"
            );
        }
        let first = self.workshops.first().expect("a daemon has at least one slot");
        if let Err(error) = first.finder.place(&first.environment) {
            tracing::warn!(target: "provisioner", %error, "jobs will fail until there is a usable terraform");
        }
        let _claim = self.claim_work_dir().await;

        let (current, receiver) = watch::channel(None);
        let link = Link::new(receiver.clone());
        let mut slots = Vec::new();
        for workshop in &self.workshops {
            slots.push(acquire_loop(workshop, &link, &self.status, &shutdown));
        }
        let mut working = std::pin::pin!(futures_util::future::join_all(slots));
        let draining = async {
            shutdown.reached(Stop::Drain).await;
            self.status.send_modify(|status| status.draining = true);
            tracing::info!(target: "provisioner", "attempting graceful shutdown");
            shutdown.reached(Stop::Cancel).await;
            tracing::info!(target: "provisioner", "attempting graceful cancellation");
            std::future::pending::<()>().await;
        };
        let refused = tokio::select! {
            _ = &mut working => None,
            refused = self.connect_loop(current) => Some(refused),
            () = draining => None,
        };
        if refused.is_some() {
            // Jobs in hand learn that there will be no other connection; Terraform is interrupted, not killed.
            working.await;
        }
        tracing::info!(target: "provisioner", "closing provisionerd");
        let client = receiver.borrow().clone();
        if let Some(client) = client {
            client.session().close().await;
        }
        self.status.send_modify(|status| status.connected = false);
        refused.map_or(Ok(()), |error| Err(RunError::Refused(error)))
    }

    /// Keeps other daemons out of the directory of jobs, and clears away what a killed one left there.
    async fn claim_work_dir(&self) -> Option<Claim> {
        let dir = self.config.cache_dir.join("work");
        let shown = dir.display().to_string();
        match tokio::task::spawn_blocking(move || Claim::take(&dir)).await {
            Ok(Ok(Some(claim))) => Some(claim),
            Ok(Ok(None)) => {
                tracing::warn!(target: "provisioner", dir = %shown, "another daemon uses this cache directory; give each its own");
                None
            }
            Ok(Err(error)) => {
                tracing::warn!(target: "provisioner", dir = %shown, %error, "jobs will fail until this directory can be used");
                None
            }
            Err(error) => {
                tracing::error!(target: "provisioner", %error, "clearing the work directory failed");
                None
            }
        }
    }

    fn mention(&self, message: &str) {
        if self.config.built_in {
            tracing::debug!(target: "provisioner", "{message}");
        } else {
            tracing::info!(target: "provisioner", "{message}");
        }
    }

    /// Connects, again and again; ends only when the server will never let this daemon in.
    async fn connect_loop(&self, current: watch::Sender<Option<Client>>) -> ConnectError {
        let mut backoff = Backoff::new(FIRST_REDIAL, LAST_REDIAL);
        loop {
            match self.connector.connect().await {
                Ok(stream) => {
                    let connected_at = Instant::now();
                    let client = Client::new(mux::Session::client(stream, mux::Config::default()));
                    self.mention("successfully connected to coderd");
                    self.status.send_modify(|status| {
                        status.connected = true;
                        status.last_error = None;
                    });
                    current.send_replace(Some(client.clone()));
                    let ended = client.session().closed().await;
                    current.send_replace(None);
                    self.status.send_modify(|status| status.connected = false);
                    self.mention(&format!("connection to coderd closed: {ended}"));
                    if connected_at.elapsed() >= STABLE_AFTER {
                        backoff.reset();
                    }
                }
                Err(error) => {
                    self.status.send_modify(|status| status.last_error = Some(error.to_string()));
                    if error.is_final() {
                        tracing::error!(target: "provisioner", %error, "not authorized to dial coderd");
                        return error;
                    }
                    tracing::warn!(target: "provisioner", %error, "coderd client failed to dial");
                }
            }
            tokio::time::sleep(backoff.next()).await;
        }
    }
}

fn workshop(config: &Config, environment: &Environment, slot: usize) -> Workshop {
    Workshop {
        finder: Finder::new(config.terraform.clone()),
        environment: environment.clone(),
        clock: Arc::new(SystemClock),
        work_dir: config.cache_dir.join("work"),
        // Terraform's plugin cache must not be used by two commands at once.
        plugin_cache: config.cache_dir.join(format!("plugins-{slot}")),
        pace: Pace {
            interval: config.update_interval,
            patience: Patience {
                connected: Some(config.update_timeout),
                disconnected: Some(config.lost_contact_after),
            },
        },
        force_cancel_after: config.force_cancel_after,
        exit_timeout: config.exit_timeout,
    }
}

/// Takes jobs and runs them until the daemon is to stop.
async fn acquire_loop(workshop: &Workshop, link: &Link, status: &watch::Sender<Status>, shutdown: &Shutdown) {
    let mut backoff = Backoff::new(FIRST_REACQUIRE, LAST_REACQUIRE);
    while shutdown.requested().is_none() {
        let client = tokio::select! {
            client = link.client() => client,
            () = shutdown.reached(Stop::Drain) => return,
        };
        let Some(client) = client else { return };
        match acquire(&client, shutdown).await {
            Ok(Some(job)) => {
                backoff.reset();
                let job_id = job.job_id.clone();
                tracing::debug!(target: "provisioner", %job_id, initiator = %job.user_name, "acquired job");
                status.send_modify(|status| {
                    status.jobs.push(job_id.clone());
                    status.jobs_started += 1;
                });
                job::run(workshop, link, job, shutdown).await;
                status.send_modify(|status| status.jobs.retain(|known| *known != job_id));
            }
            Ok(None) => backoff.reset(),
            Err(error) => {
                tracing::debug!(target: "provisioner", %error, "acquiring a job failed");
                tokio::select! {
                    () = tokio::time::sleep(backoff.next()) => {}
                    () = shutdown.reached(Stop::Drain) => {}
                }
            }
        }
    }
}

/// Waits for a job. When the daemon is to stop, the server is told so; a job that is on its way all the same is run
/// (wire-protocol 5.3).
async fn acquire(client: &Client, shutdown: &Shutdown) -> Result<Option<AcquiredJob>, CallError> {
    let unanswered = async {
        shutdown.reached(Stop::Drain).await;
        tokio::select! {
            () = tokio::time::sleep(CANCEL_ACQUIRE_TIMEOUT) => {}
            () = shutdown.reached(Stop::Force) => {}
        }
    };
    tokio::select! {
        acquired = client.acquire(shutdown.reached(Stop::Drain)) => acquired.map_err(CallError::from),
        () = unanswered => Ok(None),
    }
}
