//! Jobs of lost connections: after a connection ended or the server restarted, daemons get a grace period to reconnect.

use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::{JobEvent, Sender};
use coder_store::jobs::{self, Holder};
use coder_store::{Error, transaction};
use tokio::time::sleep;

use super::cancel;
use super::end_job::end_job;
use crate::context::App;
use crate::provisioning::dispatch::scheduler::BROKEN;
use crate::provisioning::session::Session;
use crate::retry::retry_until_stop;

/// Most jobs that are recovered after a restart. The reaper would find further ones.
const OPEN: i64 = 100_000;

/// A job, and the condition that must hold at the end of the grace period.
type WatchedJob = (JobId, While);

/// The connection ended. Its jobs count as lost until their daemon reconnects.
pub(crate) async fn connection(session: &Session) {
    let jobs = session.held_jobs.jobs();
    if jobs.is_empty() {
        return;
    }
    if session.held_jobs.is_superseded() {
        return abandoned(session, jobs).await;
    }
    let app = &session.app;
    let resumable: Vec<JobId> =
        jobs.iter().filter(|(_, epoch)| epoch.is_some() && session.resumes()).map(|(job, _)| *job).collect();
    // Without `resume` the official rule applies: the time since the last update counts, not the connection.
    let lost: Vec<_> =
        jobs.into_iter().filter(|(job, epoch)| epoch.is_none() || resumable.contains(job)).collect();
    let Some(at) = note(session, &lost).await else { return };
    if !resumable.is_empty() {
        let watched = resumable.into_iter().map(|job| (job, While::LostSince(at))).collect();
        watch(app, watched, app.config.provisioning.daemon_grace);
    }
    for (job, _) in lost.into_iter().filter(|(_, epoch)| epoch.is_none()) {
        cancel::watch_disconnected(app, job);
    }
}

/// Stores that the jobs are lost. `None` when the server stops before; then the next process recovers them.
async fn note(session: &Session, jobs: &[(JobId, Option<i64>)]) -> Option<Timestamp> {
    let store = async || {
        let now = session.app.now();
        let mut tx = session.app.store.single().await?;
        Ok((now, jobs::update_lost(&mut tx, session.daemon, jobs, now).await?))
    };
    let is_worth_it = |error: &Error| {
        tracing::warn!(%error, "cannot store that a daemon's connection ended, trying again");
        true
    };
    let (now, lost) = retry_until_stop(&session.app.lifecycle, store, is_worth_it).await?.ok()?;
    tracing::info!(daemon_id = %session.daemon, lost, "lost the connection of a daemon with running jobs");
    Some(now)
}

/// The same process has a newer connection, and listed its jobs there. A job that only this connection held never reached it.
async fn abandoned(session: &Session, jobs: Vec<(JobId, Option<i64>)>) {
    for (job, epoch) in jobs.into_iter().filter(|(_, epoch)| epoch.is_some()) {
        let (app, holder, now) = (&session.app, Holder { daemon: session.daemon, epoch }, session.app.now());
        let failed =
            transaction!(app.store, Error, |tx| { jobs::fail(tx, job, holder, BROKEN, "", now).await });
        match failed {
            Ok(()) => app.events.job_ended(job),
            // The newer connection holds it.
            Err(Error::Stale { .. }) => {}
            Err(error) => {
                tracing::warn!(job_id = %job, %error, "cannot end an undelivered job, leaving it to the reaper")
            }
        }
    }
}

/// Waits for the grace period of all jobs of a lost session.
fn watch(app: &App, jobs: Vec<WatchedJob>, grace: Duration) {
    let context = app.clone();
    app.lifecycle.spawn("lost session", async move {
        tokio::select! {
            () = context.lifecycle.soft().cancelled() => return,
            () = sleep(grace) => {}
        }
        for (job, condition) in jobs {
            end_lost(&context, job, condition).await;
        }
    });
}

async fn end_lost(app: &App, job: JobId, condition: While) {
    let message = "Coder: the provisioner daemon's connection ended and it did not reconnect in time.";
    let end = || end_job(app, job, condition, DAEMON_LOST, message);
    if let Some(Err(error)) = retry_until_stop(&app.lifecycle, end, Error::is_retryable).await {
        tracing::warn!(job_id = %job, %error, "cannot end a lost job, leaving it to the reaper");
    }
}

/// After a start, daemons with running jobs get the whole grace period to reconnect.
///
/// # Errors
/// When the database fails.
pub async fn recover(app: &App) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.reader().await?;
    let open = jobs::reap::list_candidates(&mut tx, Timestamp::MAX, Timestamp::MIN, OPEN).await?;
    let open = jobs::find_many(&mut tx, &open).await?;
    drop(tx);
    let mut watched: Vec<WatchedJob> = Vec::new();
    for job in open.into_iter().filter(|job| job.completed_at.is_none()) {
        let Some(daemon) = job.worker_id else { continue };
        match (job.session_hash, job.lost_at) {
            (Some(_), Some(at)) => watched.push((job.id, While::LostSince(at))),
            // The end of the connection was not stored. On Postgres it may be connected to another replica, which updates the job.
            (Some(_), None) => watched.push((job.id, While::SilentSince(job.updated_at))),
            (None, lost_at) => {
                if lost_at.is_none() {
                    let mut tx = app.store.single().await?;
                    jobs::update_lost(&mut tx, daemon, &[(job.id, None)], now).await?;
                }
                if job.canceled_at.is_some() {
                    cancel::watch_disconnected(app, job.id);
                }
            }
        }
        watched.push((job.id, state.after_restart(now)));
    }
    let jobs = deadlines::watch(app, watched);
    if jobs > 0 {
        tracing::info!(jobs, "open jobs wait for their daemons to come back");
    }
    Ok(())
}
