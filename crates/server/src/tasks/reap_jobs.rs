//! Ends jobs whose daemon is silent or did not come back, and jobs that no daemon can run (scheduling-and-auth 3.6).
//! `coder_domain::job::lifecycle` decides which.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::job::lifecycle::{Ending, Lifecycle};
use coder_store::Error;
use coder_store::jobs::{self, Job, reap};
use jiff::SignedDuration;

use super::clock_jump::ClockJump;
use super::driver::Task;
use super::unserved::UnservedCheck;
use crate::context::App;
use crate::provisioning::rescue::end_job::end_job;

/// Most jobs in one round. A pass repeats rounds until no job is left.
const BATCH_SIZE: i64 = 1000;

/// A clock whose time differs by more than this from the time that passed was set.
const CLOCK_JUMP: SignedDuration = SignedDuration::from_secs(30);

/// The task.
#[derive(Debug, Default)]
pub struct ReapJobs {
    clock: ClockJump,
}

impl Task for ReapJobs {
    const NAME: &'static str = "job reaper";

    async fn run(&mut self, app: &App) -> Result<(), Error> {
        let limits = app.config.provisioning.limits();
        let now = app.now();
        if self.clock.is_set(now, CLOCK_JUMP) {
            // After a jump of this clock, silence means nothing.
            tracing::warn!("the clock jumped: the time limits of jobs and daemons start again");
            app.scheduler.watch_from(now);
        }
        let before = |age| now.checked_sub(age).ok();
        let (Some(silent), Some(pending)) = (before(limits.shortest_silence()), before(limits.pending_after))
        else {
            return Ok(());
        };
        // The query costs one statement a minute. An idle server without open jobs skips it (see `Scheduler::is_quiet`).
        if !app.store.is_postgres() && app.scheduler.is_quiet() {
            return Ok(());
        }
        // Two queries, so that a long queue of pending jobs cannot hide hung ones.
        reap(app, now, silent, Timestamp::MIN).await?;
        reap(app, now, Timestamp::MIN, pending).await?;
        note_quiet(app, now).await
    }
}

async fn reap(app: &App, now: Timestamp, silent: Timestamp, pending: Timestamp) -> Result<(), Error> {
    let mut organizations = HashMap::new();
    loop {
        let mut tx = app.store.reader().await?;
        let candidates = reap::list_candidates(&mut tx, silent, pending, BATCH_SIZE).await?;
        let found = jobs::find_many(&mut tx, &candidates).await?;
        drop(tx);
        let mut ended = 0;
        for job in &found {
            let Some(ending) = ending(app, job, now, &mut organizations).await? else { continue };
            ended += usize::from(end_job(app, job.id, &ending).await?);
        }
        // The remaining jobs wait for daemons that are connected.
        if ended == 0 || found.len() < usize::try_from(BATCH_SIZE).unwrap_or(usize::MAX) {
            return Ok(());
        }
    }
}

async fn note_quiet(app: &App, now: Timestamp) -> Result<(), Error> {
    let announced = app.scheduler.announced();
    let far = now.checked_add(SignedDuration::from_hours(24)).unwrap_or(Timestamp::MAX);
    if reap::list_candidates(&mut app.store.reader().await?, far, far, 1).await?.is_empty() {
        app.scheduler.set_quiet(announced);
    }
    Ok(())
}

/// Why the job ends now, if it does.
async fn ending(
    app: &App,
    job: &Job,
    now: Timestamp,
    organizations: &mut HashMap<OrganizationId, UnservedCheck>,
) -> Result<Option<Ending>, Error> {
    let (state, limits) = (job.lifecycle(), app.config.provisioning.limits());
    if state != Lifecycle::Waiting {
        return Ok(state.due(now, &limits, app.scheduler.watched_since()));
    }
    let seen = match organizations.entry(job.organization_id) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let seen = UnservedCheck::load(app, &mut app.store.reader().await?, job.organization_id).await?;
            new.insert(seen)
        }
    };
    let (capable_daemon_seen_at, reason) = seen.of(job, now);
    Ok(state.due_pending(now, &limits, capable_daemon_seen_at, &reason))
}
