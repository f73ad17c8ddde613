//! Connections that ended under their jobs, and jobs whose server was restarted: who gets how long to come back.

use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::DAEMON_LOST;
use coder_store::jobs::{self, Holder, While};
use coder_store::{Error, transaction};
use tokio::time::sleep;

use super::cancel;
use super::end_job::give_up;
use crate::context::App;
use crate::provisioning::dispatch::scheduler::BROKEN;
use crate::provisioning::session::Session;
use crate::retry::RETRY_AFTER;

/// Jobs looked at after a restart; more cannot be open at once in practice, and the reaper would find them.
const OPEN: i64 = 100_000;

/// A job, and what must still be true when the time is over.
type Watched = (JobId, While);

/// The connection has ended: its jobs are lost from now on, until their daemon comes back.
pub(crate) async fn connection(session: &Session) {
    let jobs = session.hand.jobs();
    if jobs.is_empty() {
        return;
    }
    if session.hand.is_superseded() {
        return abandoned(session, jobs).await;
    }
    let app = &session.app;
    let resumable: Vec<JobId> =
        jobs.iter().filter(|(_, epoch)| epoch.is_some() && session.resumes()).map(|(job, _)| *job).collect();
    // Without `resume` a session has the official rule: silence counts, not the connection.
    let lost: Vec<_> =
        jobs.into_iter().filter(|(job, epoch)| epoch.is_none() || resumable.contains(job)).collect();
    let Some(at) = note(session, &lost).await else { return };
    if !resumable.is_empty() {
        let watched = resumable.into_iter().map(|job| (job, While::LostSince(at))).collect();
        watch(app, watched, app.config.provisioning.daemon_grace);
    }
    for (job, _) in lost.into_iter().filter(|(_, epoch)| epoch.is_none()) {
        cancel::watch_unheard(app, job);
    }
}

/// Writes down that the jobs are lost; none when the server stops before it could. Then its successor finds out.
async fn note(session: &Session, jobs: &[(JobId, Option<i64>)]) -> Option<Timestamp> {
    loop {
        let now = session.app.now();
        let noted = async {
            jobs::update_lost(&mut session.app.store.single().await?, session.daemon, jobs, now).await
        };
        match noted.await {
            Ok(lost) => {
                tracing::info!(daemon = %session.daemon, lost, "a daemon's connection ended under its jobs");
                return Some(now);
            }
            Err(error) => {
                tracing::warn!(%error, "that a daemon's connection ended cannot be written down now");
                tokio::select! {
                    () = session.app.lifecycle.soft().cancelled() => return None,
                    () = sleep(RETRY_AFTER) => {}
                }
            }
        }
    }
}

/// The same process has a newer connection, where it listed what it has. What only this one held never reached it.
async fn abandoned(session: &Session, jobs: Vec<(JobId, Option<i64>)>) {
    for (job, epoch) in jobs.into_iter().filter(|(_, epoch)| epoch.is_some()) {
        let (app, holder, now) = (&session.app, Holder { daemon: session.daemon, epoch }, session.app.now());
        let failed =
            transaction!(app.store, Error, |tx| { jobs::fail(tx, job, holder, BROKEN, "", now).await });
        match failed {
            Ok(()) => app.events.job_ended(job),
            // It moved to the newer connection.
            Err(Error::Stale { .. }) => {}
            Err(error) => tracing::warn!(%job, %error, "an undelivered job waits for the reaper"),
        }
    }
}

/// One timer for all jobs of a lost session.
fn watch(app: &App, jobs: Vec<Watched>, grace: Duration) {
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
    let said = "Coder: the provisioner daemon's connection ended and it did not come back in time.";
    while let Err(error) = give_up(app, job, condition, DAEMON_LOST, said).await {
        if !error.is_retryable() {
            tracing::warn!(%job, %error, "a lost job waits for the reaper");
            return;
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = sleep(RETRY_AFTER) => {}
        }
    }
}

/// After a start: whoever had jobs before gets the whole grace to come back.
///
/// # Errors
/// When the database fails.
pub async fn recover(app: &App) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.reader().await?;
    let open = jobs::reap::list_candidates(&mut tx, Timestamp::MAX, Timestamp::MIN, OPEN).await?;
    let open = jobs::find_many(&mut tx, &open).await?;
    drop(tx);
    let mut watched: Vec<Watched> = Vec::new();
    for job in open.into_iter().filter(|job| job.completed_at.is_none()) {
        let Some(daemon) = job.worker_id else { continue };
        match (job.session_hash, job.lost_at) {
            (Some(_), Some(at)) => watched.push((job.id, While::LostSince(at))),
            // Nobody saw the connection's end. On Postgres another replica may have it: then it gives signs of life.
            (Some(_), None) => watched.push((job.id, While::SilentSince(job.updated_at))),
            (None, lost_at) => {
                if lost_at.is_none() {
                    let mut tx = app.store.single().await?;
                    jobs::update_lost(&mut tx, daemon, &[(job.id, None)], now).await?;
                }
                if job.canceled_at.is_some() {
                    cancel::watch_unheard(app, job.id);
                }
            }
        }
    }
    if !watched.is_empty() {
        tracing::info!(jobs = watched.len(), "jobs of before the start wait for their daemons to come back");
        watch(app, watched, app.config.provisioning.daemon_grace);
    }
    Ok(())
}
