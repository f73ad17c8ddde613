//! One slot of the daemon: it acquires a job, runs it, and acquires the next one (wire-protocol 5.1, 5.3).

use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_wire::daemon::Client;
use coder_wire::messages::provisionerd::AcquiredJob;
use tokio::sync::watch;

use super::health::Health;
use super::status::Status;
use crate::cancel::{Cancel, Shutdown, Stop};
use crate::connection::{CallError, ConnectionHandle};
use crate::job;
use crate::job::JobContext;

/// Delays after a failed acquire (wire-protocol 5.1).
const MIN_ACQUIRE_DELAY: Duration = Duration::from_millis(16);
const MAX_ACQUIRE_DELAY: Duration = Duration::from_secs(1);

/// How long the server may take to confirm a canceled acquire.
const CANCEL_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Slot {
    pub(crate) context: JobContext,
    pub(crate) link: ConnectionHandle,
    pub(crate) status: watch::Sender<Status>,
    pub(crate) shutdown: Shutdown,
    /// The daemon runs only one job.
    pub(crate) once: bool,
}

impl Slot {
    /// Acquires and runs jobs until the daemon stops.
    pub(crate) async fn run(self) {
        let mut backoff = Backoff::new(MIN_ACQUIRE_DELAY, MAX_ACQUIRE_DELAY);
        while self.shutdown.requested().is_none() {
            let connection = async {
                self.wait_until_ready(true).await;
                self.link.connection().await
            };
            let connection = tokio::select! {
                connection = connection => connection,
                () = self.link.ended() => return,
                () = self.shutdown.reached(Stop::Drain) => return,
            };
            let Some(connection) = connection else { return };
            match self.acquire(connection.client()).await {
                Ok(Some(job)) => {
                    backoff.reset();
                    self.run_job(job).await;
                }
                Ok(None) => backoff.reset(),
                Err(error) => {
                    tracing::debug!(target: "provisioner", %error, "acquiring a job failed");
                    tokio::select! {
                        () = tokio::time::sleep(backoff.next_delay()) => {}
                        () = self.shutdown.reached(Stop::Drain) => {}
                    }
                }
            }
        }
    }

    /// Waits until the daemon can run jobs, or with `false` until it cannot.
    async fn wait_until_ready(&self, wanted: bool) {
        let mut status = self.status.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = status.wait_for(|status| (status.health == Health::Ready) == wanted).await;
    }

    /// Acquires a job. When the slot no longer wants one, it tells the server; a job that the server has
    /// already sent is still run (wire-protocol 5.3).
    async fn acquire(&self, client: &Client) -> Result<Option<AcquiredJob>, CallError> {
        let unwanted = async {
            tokio::select! {
                () = self.shutdown.reached(Stop::Drain) => {}
                () = self.wait_until_ready(false) => {}
            }
        };
        let unanswered = async {
            self.shutdown.reached(Stop::Drain).await;
            tokio::select! {
                () = tokio::time::sleep(CANCEL_ACQUIRE_TIMEOUT) => {}
                () = self.shutdown.reached(Stop::Force) => {}
            }
        };
        tokio::select! {
            acquired = client.acquire(unwanted) => acquired.map_err(CallError::from),
            () = unanswered => Ok(None),
        }
    }

    async fn run_job(&self, job: AcquiredJob) {
        if self.once {
            // Other slots stop acquiring; a job that the server has already sent to one of them is still run.
            self.shutdown.drain();
        }
        let job_id = job.job_id.clone();
        self.context.log_start(&job);
        let cancel = Cancel::new();
        let running_job = self.link.held_jobs().take(&job_id, cancel.clone());
        self.status.send_modify(|status| {
            status.jobs.push(job_id.clone());
            status.jobs_started += 1;
        });
        job::run(&self.context, &self.link, &running_job, job, cancel, &self.shutdown).await;
        drop(running_job);
        self.status.send_modify(|status| status.jobs.retain(|known| *known != job_id));
    }
}
