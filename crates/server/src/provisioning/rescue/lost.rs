//! Connections that ended while they held jobs, and jobs whose server was restarted: marks the jobs as lost and sets
//! timers to their deadlines.

use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::{JobEvent, Sender};
use coder_store::jobs::{self, Holder};
use coder_store::{Error, transaction};

use super::deadlines;
use crate::context::App;
use crate::provisioning::dispatch::scheduler::BROKEN;
use crate::provisioning::session::Session;
use crate::retry::retry_until_stop;

/// Most jobs that are recovered after a restart. The reaper would find further ones.
const MAX_RECOVERED_JOBS: i64 = 100_000;

/// The connection ended. Its jobs count as lost until their daemon reconnects.
pub(crate) async fn connection(session: &Session) {
    let jobs = session.held_jobs.jobs();
    if jobs.is_empty() {
        return;
    }
    if session.held_jobs.is_superseded() {
        return abandoned(session, jobs).await;
    }
    // Without `resume` the official rule applies: the time since the last update counts, not the connection.
    let resumes = session.resumes();
    let lost: Vec<_> = jobs.into_iter().filter(|(_, epoch)| epoch.is_none() || resumes).collect();
    if note(session, &lost).await.is_some() {
        deadlines::watch_jobs(&session.app, lost.into_iter().map(|(job, _)| job).collect());
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

/// The same process has a newer connection, where it listed its jobs. A job that only this connection held never reached it.
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

/// After a start: sets timers for the jobs of disconnected daemons, which have the whole grace period to reconnect.
pub async fn recover(app: &App) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.reader().await?;
    let open =
        jobs::reap::list_candidates(&mut tx, Timestamp::MAX, Timestamp::MIN, MAX_RECOVERED_JOBS).await?;
    let open = jobs::find_many(&mut tx, &open).await?;
    drop(tx);
    let mut watched = Vec::new();
    for job in open {
        let mut state = job.lifecycle();
        if let (Some(daemon), None, None) = (job.worker_id, job.session_hash, job.lost_at) {
            // The next message of an official daemon shows that it is connected.
            jobs::update_lost(&mut app.store.single().await?, daemon, &[(job.id, None)], now).await?;
            let lost = JobEvent::ConnectionLost(Sender { daemon, epoch: None });
            state = state.clone().apply(lost, now).unwrap_or(state);
        }
        watched.push((job.id, state.after_restart(now)));
    }
    let jobs = deadlines::watch(app, watched);
    if jobs > 0 {
        tracing::info!(jobs, "open jobs wait for their daemons to reconnect");
    }
    Ok(())
}
