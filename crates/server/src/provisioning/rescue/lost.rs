//! Connections that ended while they held jobs, and jobs whose server was restarted: marks the jobs as lost and sets
//! timers to their deadlines.

use coder_domain::Timestamp;
use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::{JobEvent, Sender};
use coder_store::jobs::{self, Holder};
use coder_store::{Error, transaction};
use tokio::time::sleep;

use super::deadlines;
use crate::context::App;
use crate::provisioning::dispatch::scheduler::BROKEN;
use crate::provisioning::session::Session;
use crate::retry::RETRY_AFTER;

/// Jobs looked at after a restart; more cannot be open at once in practice, and the reaper would find them.
const OPEN: i64 = 100_000;

/// The connection has ended: its jobs are lost from now on, until their daemon comes back.
pub(crate) async fn connection(session: &Session) {
    let jobs = session.hand.jobs();
    if jobs.is_empty() {
        return;
    }
    if session.hand.is_superseded() {
        return abandoned(session, jobs).await;
    }
    // Without `resume` a session has the official rule: silence counts, not the connection.
    let resumes = session.resumes();
    let lost: Vec<_> = jobs.into_iter().filter(|(_, epoch)| epoch.is_none() || resumes).collect();
    if note(session, &lost).await.is_some() {
        deadlines::watch_jobs(&session.app, lost.into_iter().map(|(job, _)| job).collect());
    }
}

/// Stores that the jobs are lost; none when the server stops before it could. Then its successor finds out.
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

/// The same process has a newer connection, where it listed its jobs. A job that only this connection held never reached it.
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

/// After a start: sets timers for the jobs of disconnected daemons, which have the whole time to come back.
///
/// # Errors
/// When the database fails.
pub async fn recover(app: &App) -> Result<(), Error> {
    let now = app.now();
    let mut tx = app.store.reader().await?;
    let open = jobs::reap::list_candidates(&mut tx, Timestamp::MAX, Timestamp::MIN, OPEN).await?;
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
        tracing::info!(jobs, "open jobs wait for their daemons to come back");
    }
    Ok(())
}
