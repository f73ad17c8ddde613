//! Carries out what is due for workspaces, and sleeps until something is due next. One server at a time does so, by a lease;
//! that two never do the same is guarded by the rows themselves.

use std::collections::HashSet;
use std::time::Duration;

use coder_domain::Timestamp;
use coder_domain::ids::WorkspaceId;
use coder_store::workspaces::schedules;
use coder_store::{Error, leases};
use jiff::SignedDuration;
use tokio::time::Instant;

use super::clock_jump::ClockJump;
use super::driver::WakingTask;
use crate::context::App;
use crate::schedules::perform;

/// The lease of the task.
const LEASE: &str = "workspace schedules";
/// For how long a killed server keeps the lease.
const LEASE_TIME: SignedDuration = SignedDuration::from_secs(60);
/// Workspaces between two renewals of the lease.
const BATCH_SIZE: i64 = 50;
/// When another server has the lease, this one looks again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// A clock whose time differs by more than this from the time that passed was set.
const CLOCK_JUMP: SignedDuration = SignedDuration::from_secs(120);

/// The task.
#[derive(Debug, Default)]
pub struct WorkspaceSchedules {
    clock: ClockJump,
    /// Until then, no workspace becomes dormant or is deleted.
    removals_held_until: Option<Instant>,
}

impl WakingTask for WorkspaceSchedules {
    const NAME: &'static str = "workspace schedules";

    async fn run(&mut self, app: &App) -> Result<Duration, Error> {
        let settings = &app.config.schedules;
        if self.clock.is_set(app.now(), CLOCK_JUMP) {
            tracing::warn!(
                hold_seconds = settings.removal_hold.as_secs(),
                "the clock was set: schedules are calculated again, and for a while no workspace becomes dormant or is deleted"
            );
            self.removals_held_until = Some(Instant::now() + settings.removal_hold);
            schedules::clock_changed(&mut app.store.single().await?, app.now()).await?;
        }
        let is_held = self.removals_held_until.is_some_and(|until| Instant::now() < until);
        let mut due = until_due(app).await?;
        if due.is_some_and(|wait| wait.is_zero()) {
            if !work(app, is_held).await? {
                return Ok(settings.check_every.min(RETRY_INTERVAL));
            }
            due = until_due(app).await?;
        }
        let wait = due.unwrap_or(settings.check_every);
        // What could not be looked at in this pass is due still.
        Ok(if wait.is_zero() {
            settings.check_every.min(RETRY_INTERVAL)
        } else {
            wait.min(settings.check_every)
        })
    }
}

/// The time until something is due; none when nothing will be.
async fn until_due(app: &App) -> Result<Option<Duration>, Error> {
    let due = schedules::find_next_due(&mut app.store.reader().await?).await?;
    Ok(due.map(|due| Duration::try_from(due.duration_since(app.now())).unwrap_or_default()))
}

/// Looks at every workspace that is due. Returns false when another server does so.
async fn work(app: &App, hold_removals: bool) -> Result<bool, Error> {
    let holder = app.events.outbox().own().to_string();
    let mut seen = HashSet::new();
    loop {
        let now = app.now();
        if !claim(app, &holder, now).await? {
            return Ok(false);
        }
        let due = schedules::list_due(&mut app.store.reader().await?, now, BATCH_SIZE).await?;
        let new: Vec<WorkspaceId> = due.into_iter().filter(|id| seen.insert(*id)).collect();
        if new.is_empty() || app.lifecycle.soft().is_cancelled() {
            break;
        }
        for id in new {
            // One workspace must not keep the others from their schedules.
            if let Err(error) = perform::look_at(app, id, hold_removals).await {
                tracing::warn!(workspace_id = %id, %error, "cannot carry out the schedule of a workspace, trying again");
                if !matches!(error, Error::Stale { .. } | Error::Corrupt { .. } | Error::NotFound { .. }) {
                    release(app, &holder).await?;
                    return Err(error);
                }
            }
        }
    }
    release(app, &holder).await?;
    Ok(true)
}

async fn claim(app: &App, holder: &str, now: Timestamp) -> Result<bool, Error> {
    let Ok(until) = now.checked_add(LEASE_TIME) else { return Ok(false) };
    leases::claim(&mut app.store.single().await?, LEASE, holder, until, now).await
}

async fn release(app: &App, holder: &str) -> Result<(), Error> {
    leases::finish(&mut app.store.single().await?, LEASE, holder).await
}
