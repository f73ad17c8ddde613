//! Timers that end the jobs of disconnected daemons at their deadline (`coder_domain::job::lifecycle`). The reaper ends
//! what they miss, and jobs that hang.

use std::time::Duration;

use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::{Cause, Deadline, Ending, Lifecycle};
use coder_store::{Error, jobs};
use tokio::time::{Instant, sleep_until};

use super::end_job::end_job;
use crate::context::App;
use crate::retry::retry_until_stop;

/// Reads these jobs in the background and sets timers as [`watch`] does.
pub(super) fn watch_jobs(app: &App, jobs: Vec<JobId>) {
    let context = app.clone();
    app.lifecycle.spawn("lost jobs", async move {
        let read = || states(&context, &jobs);
        match retry_until_stop(&context.lifecycle, read, Error::is_retryable).await {
            Some(Ok(states)) => drop(watch(&context, states)),
            Some(Err(error)) => tracing::warn!(%error, "cannot read lost jobs, leaving them to the reaper"),
            None => {}
        }
    });
}

async fn states(app: &App, jobs: &[JobId]) -> Result<Vec<(JobId, Lifecycle)>, Error> {
    let found = jobs::find_many(&mut app.store.reader().await?, jobs).await?;
    Ok(found.iter().map(|job| (job.id, job.lifecycle())).collect())
}

/// Ends each of these jobs whose daemon is disconnected at its deadline, unless it changes before: the guard of the
/// ending refuses it then. Returns how many are watched.
pub(super) fn watch(app: &App, jobs: Vec<(JobId, Lifecycle)>) -> usize {
    let (limits, watched_since) = (app.config.provisioning.limits(), app.scheduler.watched_since());
    let deadline = |(id, state): (JobId, Lifecycle)| Some((id, state.deadline(&limits, watched_since)?));
    let mut watched: Vec<_> = jobs.into_iter().filter_map(deadline).collect();
    // Each heartbeat would move the deadline of a connected daemon's job.
    watched.retain(|(_, deadline)| !matches!(deadline.ending.cause, Cause::Hung(_)));
    watched.sort_by_key(|(_, deadline)| deadline.at);
    let count = watched.len();
    if count > 0 {
        let context = app.clone();
        app.lifecycle.spawn("job deadlines", async move { end_each(&context, watched).await });
    }
    count
}

async fn end_each(app: &App, jobs: Vec<(JobId, Deadline)>) {
    // By the monotonic clock, so that a clock that is set shortens no deadline.
    let (now, started) = (app.now(), Instant::now());
    for (job, deadline) in jobs {
        let wait = Duration::try_from(deadline.at.duration_since(now)).unwrap_or_default();
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = sleep_until(started + wait) => {}
        }
        end(app, job, &deadline.ending).await;
    }
}

async fn end(app: &App, job: JobId, ending: &Ending) {
    let end = || end_job(app, job, ending);
    if let Some(Err(error)) = retry_until_stop(&app.lifecycle, end, Error::is_retryable).await {
        tracing::warn!(job_id = %job, %error, "cannot end a lost job, leaving it to the reaper");
    }
}
