//! The calls that a connected daemon makes here, and the end of its session.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coder_domain::ids::JobId;
use coder_store::{daemons, jobs, transaction};
use coder_wire::bytes::ByteStream;
use coder_wire::daemon::{self, Acquire, CloseReason, Limits, Service};
use coder_wire::drpc::{self, Status};
use coder_wire::file::FileHeader;
use coder_wire::messages::provisionerd::{
    AcquiredJob, CommitQuotaRequest, CommitQuotaResponse, CompletedJob, FailedJob, FileRequest,
    UpdateJobRequest, UpdateJobResponse,
};
use coder_wire::{error_chain, mux};
use futures_util::FutureExt;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::{Session, presence};
use crate::events::hint::Hint;
use crate::provisioning::credentials::expiry;
use crate::provisioning::dispatch::payload;
use crate::provisioning::dispatch::scheduler::{AcquireOutcome, BROKEN, Claimed, WaitingDaemon};
use crate::provisioning::reports::refusal::Refusal;
use crate::provisioning::reports::{complete, fail, module_files, quota, update};
use crate::provisioning::rescue::lost;
use crate::retry::{RETRY_AFTER, retry_while};
use crate::spool::Spool;
use crate::stored_file::StoredFile;

/// How long a call waits for an unavailable database. Daemons give an update 30 s and repeat other calls for ever.
const DATABASE_WAIT: Duration = Duration::from_secs(60);
/// After this time the daemon is disconnected instead. While it is connected, it repeats an update for 30 s in all and
/// then ends the job. Without a connection it waits for minutes, and nobody can join while the database is unavailable.
const DISCONNECT_AFTER: Duration = Duration::from_secs(15);

impl Session {
    /// Serves the daemon until it disconnects, its key ends, or the server stops.
    pub async fn run(self, io: impl ByteStream) {
        let (daemon, close, stop) = (self.daemon, self.close.clone(), self.app.lifecycle.soft().clone());
        let holder = self.holds.connection();
        let session =
            mux::Session::accounted(io, mux::Config::default(), holder.memory().clone(), holder.unread());
        let this = Arc::new(self);
        let serving = async {
            let limits = Limits::default();
            if this.granted.is_empty() {
                daemon::serve(&session, Arc::clone(&this), limits).await
            } else {
                let (official, extended) = (Arc::clone(&this), Arc::clone(&this));
                daemon::serve_extended(&session, official, extended, this.granted, limits).await
            }
        };
        let mut serving = std::pin::pin!(serving);
        let closing = async {
            tokio::select! {
                () = close.cancelled() => {}
                () = stop.cancelled() => {}
                () = expiry::reached_end(&this) => {}
            }
            session.close().await;
        };
        let watching = async {
            session.closed().await;
            this.ended.cancel();
            std::future::pending::<()>().await
        };
        let mut watching = std::pin::pin!(watching);
        let reason = tokio::select! {
            reason = serving.as_mut() => reason,
            () = watching.as_mut() => unreachable!("watching never ends"),
            () = closing => tokio::select! {
                reason = serving => reason,
                () = watching => unreachable!("watching never ends"),
            },
        };
        tracing::info!(daemon_id = %daemon, %reason, "provisioner daemon disconnected");
        Box::pin(lost::connection(&this)).await;
        Box::pin(this.note_left()).await;
    }

    /// Stores that the daemon disconnected, so that lists show it as offline. A daemon that a stopping server disconnects
    /// reconnects in a moment.
    pub(crate) async fn note_left(&self) {
        let Some(connection) = &self.row_connection else { return };
        let (app, daemon, connected) = (&self.app, self.daemon, self.app.scheduler.connected());
        // From here on no other task writes this connection into the row.
        connected.set_row(&self.registration, None);
        if app.lifecycle.soft().is_cancelled() {
            return;
        }
        let noted = async {
            if let Some(another) = connected.row(daemon) {
                return presence::set_connection(app, daemon, Some(Arc::clone(connection)), another).await;
            }
            daemons::update_disconnected(&mut app.store.single().await?, daemon, connection, app.now())
                .await?;
            // It may be connected to another server as well.
            app.events.notify(Hint::Left(daemon));
            Ok(())
        };
        if let Err(error) = noted.await {
            tracing::debug!(daemon_id = %daemon, %error, "cannot store that a daemon disconnected");
        }
    }

    /// Builds the message for a claimed job. It waits for an unavailable database.
    async fn payload(&self, job: JobId) -> Result<AcquiredJob, payload::Error> {
        let since = Instant::now();
        let is_worth_it = |error: &payload::Error| {
            let waits = error.is_retryable() && since.elapsed() < DATABASE_WAIT && !self.ended.is_cancelled();
            if waits {
                tracing::debug!(job_id = %job, %error, "a claimed job waits for the database");
            }
            waits
        };
        retry_while(|| payload::build_message(self, job), is_worth_it).await
    }

    /// Builds the message for a job and delivers it.
    async fn deliver(&self, claimed: Claimed, call: &mut Acquire) -> Result<(), Status> {
        let job = claimed.job();
        // From here on the end of the connection ends the job as well.
        self.held_jobs.hold(job, claimed.epoch(), None, None);
        let message = match self.payload(job).await {
            Ok(message) => message,
            Err(error) => return Err(self.invalidate(claimed, &error).await),
        };
        // A daemon that canceled the call still reads the answer. A disconnected one does not.
        if call.closed().now_or_never() == Some(CloseReason::Disconnected) {
            self.held_jobs.end(job, None);
            return Err(Status::new(BROKEN));
        }
        match call.deliver(&message).await {
            Ok(()) => {
                claimed.delivered();
                tracing::info!(job_id = %job, daemon_id = %self.daemon, "job handed out");
                Ok(())
            }
            Err(error @ drpc::Error::TooLarge { .. }) => {
                Err(self.invalidate(claimed, &payload::Error::Unsendable(error.to_string())).await)
            }
            // It may have arrived. The daemon lists it when it reconnects.
            Err(error) if self.held_jobs.session().is_some() && self.resumes() && self.is_ending().await => {
                claimed.delivered();
                Err(Status::chain(&error))
            }
            Err(error) => {
                self.held_jobs.end(job, None);
                Err(Status::chain(&error))
            }
        }
    }

    /// Ends a job that cannot be handed out.
    async fn invalidate(&self, claimed: Claimed, error: &payload::Error) -> Status {
        let (job, text, now) = (claimed.job(), error_chain::describe(error), self.app.now());
        let failed = transaction!(self.app.store, coder_store::Error, |tx| {
            jobs::fail(tx, job, self.holder(job), &text, "", now).await
        });
        self.held_jobs.end(job, None);
        match failed {
            Ok(()) | Err(coder_store::Error::Stale { .. }) => {
                claimed.delivered();
                self.app.events.job_ended(job);
            }
            Err(error) => {
                tracing::error!(job_id = %job, %error, "cannot fail a job that could not be handed out")
            }
        }
        tracing::warn!(job_id = %job, error = text, "cannot hand out a job");
        Status::new(format!("request job was invalidated: {text}"))
    }

    /// What to do about a refused call: `None` to try again because the database is unavailable, or the error for the daemon.
    pub(crate) async fn refused(
        &self,
        call: &'static str,
        refusal: Refusal,
        since: Instant,
        canceled: &CancellationToken,
    ) -> Option<Status> {
        if refusal.is_retryable() && since.elapsed() < DATABASE_WAIT && !canceled.is_cancelled() {
            if since.elapsed() >= DISCONNECT_AFTER && !self.close.is_cancelled() {
                tracing::warn!(call, daemon_id = %self.daemon, "the database is unavailable for long, disconnecting the daemon");
                self.close.cancel();
            }
            sleep(RETRY_AFTER).await;
            return None;
        }
        if let Refusal::Store(error) = &refusal {
            tracing::error!(call, daemon_id = %self.daemon, error = error_chain::describe(error), "a daemon's call failed");
        } else {
            tracing::debug!(call, daemon_id = %self.daemon, %refusal, "a daemon's call was refused");
        }
        Some(Status::new(refusal.to_string()))
    }
}

/// Runs a call, and repeats it while the database is unavailable.
macro_rules! answer {
    ($session:ident, $call:literal, $canceled:ident, $attempt:expr) => {{
        let since = Instant::now();
        loop {
            match $attempt.await {
                Ok(answer) => break Ok(answer),
                Err(refusal) => {
                    if let Some(status) = $session.refused($call, refusal, since, &$canceled).await {
                        break Err(status);
                    }
                }
            }
        }
    }};
}

pub(super) use answer;

impl Service for Session {
    type Upload = Spool;
    type Download = StoredFile;

    async fn acquire(&self, call: &mut Acquire) -> Result<(), Status> {
        let waiting = WaitingDaemon { daemon: self.daemon, session: self.held_jobs.session() };
        loop {
            let ended = AtomicBool::new(false);
            let outcome = {
                let end = async {
                    tokio::select! {
                        _ = call.closed() => {}
                        () = self.held_jobs.retired() => {}
                        () = self.close.cancelled() => {}
                    }
                    ended.store(true, Ordering::Relaxed);
                };
                let mut end = std::pin::pin!(end);
                // A drained daemon waits here. After an empty answer it would call again at once.
                tokio::select! {
                    biased;
                    () = end.as_mut() => return Ok(()),
                    () = self.held_jobs.until_paused(false) => {}
                }
                let cancel = async {
                    tokio::select! {
                        () = end => {}
                        () = self.held_jobs.until_paused(true) => {}
                    }
                };
                self.app.scheduler.acquire(&self.domain, waiting, cancel).await
            };
            match outcome {
                Ok(AcquireOutcome::Canceled) if ended.load(Ordering::Relaxed) => return Ok(()),
                Ok(AcquireOutcome::Canceled) => {}
                Ok(AcquireOutcome::Job(claimed)) => return Box::pin(self.deliver(claimed, call)).await,
                Err(error) => {
                    tracing::warn!(daemon_id = %self.daemon, error = error_chain::describe(&error), "cannot look for a job");
                    return Err(Status::new(
                        "failed to acquire job: the server's database failed, see its log",
                    ));
                }
            }
        }
    }

    async fn commit_quota(
        &self,
        request: CommitQuotaRequest,
        canceled: CancellationToken,
    ) -> Result<CommitQuotaResponse, Status> {
        answer!(self, "CommitQuota", canceled, quota::commit(self, &request))
    }

    async fn update_job(
        &self,
        request: UpdateJobRequest,
        canceled: CancellationToken,
    ) -> Result<UpdateJobResponse, Status> {
        answer!(self, "UpdateJob", canceled, update::update(self, &request))
    }

    async fn fail_job(&self, job: FailedJob, canceled: CancellationToken) -> Result<(), Status> {
        answer!(self, "FailJob", canceled, fail::fail(self, &job))
    }

    async fn complete_job(&self, job: CompletedJob, canceled: CancellationToken) -> Result<(), Status> {
        answer!(self, "CompleteJob", canceled, complete::complete(self, &job))
    }

    async fn begin_upload(&self, header: &FileHeader) -> Result<Spool, Status> {
        let canceled = CancellationToken::new();
        answer!(self, "UploadFile", canceled, module_files::begin_upload(self, header))
    }

    async fn upload_file(
        &self,
        header: FileHeader,
        mut file: Spool,
        canceled: CancellationToken,
    ) -> Result<(), Status> {
        answer!(self, "UploadFile", canceled, module_files::upload(self, &header, &mut file))
    }

    async fn download_file(
        &self,
        request: FileRequest,
        canceled: CancellationToken,
    ) -> Result<(usize, [u8; 32], StoredFile), Status> {
        answer!(self, "DownloadFile", canceled, module_files::download(self, &request))
    }
}
