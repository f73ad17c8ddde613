//! Ends jobs whose daemon fell silent or did not come back, and jobs that nobody can take (scheduling-and-auth 3.6).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::OrganizationId;
use coder_domain::job::lifecycle::{DAEMON_LOST, terminated};
use coder_store::Error;
use coder_store::jobs::{self, Job, While, reap};
use jiff::SignedDuration;

use super::clock_jump::ClockJump;
use super::driver::Task;
use super::unserved::Seen;
use crate::context::App;
use crate::provisioning::rescue::end_job::give_up;

/// Most jobs looked at in one round; a pass goes on until none is left.
const BATCH: i64 = 1000;

/// A clock that moved so much more or less than time passed was set.
const SET: SignedDuration = SignedDuration::from_secs(30);

/// The task.
#[derive(Debug, Default)]
pub struct ReapJobs {
    clock: ClockJump,
}

/// Why a job is ended, and what must still be true of it.
struct Verdict {
    condition: While,
    error: String,
    said: String,
}

impl Task for ReapJobs {
    const NAME: &'static str = "job reaper";

    async fn run(&mut self, app: &App) -> Result<(), Error> {
        let settings = &app.config.provisioning;
        let now = app.now();
        if self.clock.is_set(now, SET) {
            // The silence that the clock shows now is not theirs.
            tracing::warn!("the clock was set; jobs and daemons are given their whole time again");
            app.scheduler.watch_from(now);
        }
        let (Some(hung), Some(pending)) =
            (before(now, settings.hung_after), before(now, settings.pending_after))
        else {
            return Ok(());
        };
        // Asking costs one statement a minute; an idle server without open jobs does not ask (see `Scheduler::is_quiet`).
        if !app.store.is_postgres() && app.scheduler.is_quiet() {
            return Ok(());
        }
        // Apart from each other, so that a long queue cannot hide what hangs.
        reap(app, now, hung, Timestamp::MIN).await?;
        reap(app, now, Timestamp::MIN, pending).await?;
        note_quiet(app, now).await
    }
}

async fn reap(app: &App, now: Timestamp, hung: Timestamp, pending: Timestamp) -> Result<(), Error> {
    let mut organizations = HashMap::new();
    loop {
        let mut tx = app.store.reader().await?;
        let candidates = reap::list_candidates(&mut tx, hung, pending, BATCH).await?;
        let found = jobs::find_many(&mut tx, &candidates).await?;
        drop(tx);
        let mut ended = 0;
        for job in &found {
            let Some(verdict) = verdict(app, job, now, &mut organizations).await? else { continue };
            let Verdict { condition, error, said } = verdict;
            ended += usize::from(give_up(app, job.id, condition, &error, &said).await?);
        }
        // Those that stay wait for daemons that are there, however long the queue.
        if ended == 0 || found.len() < usize::try_from(BATCH).unwrap_or(usize::MAX) {
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

fn before(now: Timestamp, age: Duration) -> Option<Timestamp> {
    now.checked_sub(signed(age)).ok()
}

fn signed(age: Duration) -> SignedDuration {
    SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)
}

/// The rules of `coder_domain::job::lifecycle`. Silence and absence count from the start of this server: whoever was cut off
/// by its downtime gets the whole time to come back.
async fn verdict(
    app: &App,
    job: &Job,
    now: Timestamp,
    organizations: &mut HashMap<OrganizationId, Seen>,
) -> Result<Option<Verdict>, Error> {
    let settings = &app.config.provisioning;
    let watched = app.scheduler.watched_since();
    let is_over = |since: Timestamp, limit: Duration| now.duration_since(since.max(watched)) >= signed(limit);
    if job.completed_at.is_some() {
        return Ok(None);
    }
    if job.worker_id.is_none() {
        return unserved(app, job, now, organizations).await;
    }
    if let (Some(_), Some(lost)) = (job.session_hash, job.lost_at) {
        let error = DAEMON_LOST.to_owned();
        let said = format!("Coder: {error}.");
        let verdict = Verdict { condition: While::LostSince(lost), error, said };
        return Ok(is_over(lost, settings.daemon_grace).then_some(verdict));
    }
    let after = signed(settings.hung_after);
    let verdict = Verdict {
        condition: While::SilentSince(job.updated_at),
        error: terminated("hung", after),
        said: terminated("hung", after).replace("has been terminated by the reaper", "will be terminated"),
    };
    Ok(is_over(job.updated_at, settings.hung_after).then_some(verdict))
}

/// A waiting job ends only when nothing that could run it has been seen for the whole time, with the reason.
async fn unserved(
    app: &App,
    job: &Job,
    now: Timestamp,
    organizations: &mut HashMap<OrganizationId, Seen>,
) -> Result<Option<Verdict>, Error> {
    let seen = match organizations.entry(job.organization_id) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let seen = Seen::load(app, &mut app.store.reader().await?, job.organization_id).await?;
            new.insert(seen)
        }
    };
    let (capable_daemon_seen_at, reason) = seen.of(job, now);
    let after = signed(app.config.provisioning.pending_after);
    if now.duration_since(capable_daemon_seen_at) < after {
        return Ok(None);
    }
    let error = terminated("pending", after);
    let said = error.replace("has been terminated by the reaper", "will be terminated");
    let (error, said) = (format!("{error} {reason}"), format!("{said} {reason}"));
    Ok(Some(Verdict { condition: While::Waiting, error, said }))
}
