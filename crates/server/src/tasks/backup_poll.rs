//! Makes up for lost wake-ups. Every second it reads which jobs wait for a daemon that waits here (ACQ-6), the progress of
//! the jobs that are followed here, and on Postgres the changes that other servers stored. Each is one statement, however
//! many daemons and followers there are, and none without any.

use std::collections::{HashMap, HashSet};

use coder_domain::ids::JobId;
use coder_store::changes;
use coder_store::jobs::progress::{self, Progress};
use jiff::SignedDuration;

use super::clock_jump::ClockJump;
use super::driver::Task;
use super::{heartbeat, replicas};
use crate::context::App;
use crate::events::hint::Hint;

/// A difference between wall clock and monotonic clock that counts as a change of the clock.
const CLOCK_JUMP: SignedDuration = SignedDuration::from_secs(10);

/// Most changes that one pass reads.
const BATCH_SIZE: i64 = 500;

/// The task.
#[derive(Debug, Default)]
pub struct BackupPoll {
    /// The last change that was read; `None` while no daemon and no user of an agent is connected.
    position: Option<i64>,
    /// The last known progress of the jobs that are followed or held here.
    seen: HashMap<JobId, Progress>,
    clock: ClockJump,
}

impl Task for BackupPoll {
    const NAME: &'static str = "backup poll";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        if self.clock.is_set(app.now(), CLOCK_JUMP) {
            // Other servers judge daemons by the last-seen time, until they receive a heartbeat of this server.
            heartbeat::note_connected(app).await?;
        }
        app.scheduler.wake_for_waiting_jobs().await?;
        self.check_jobs(app).await?;
        self.read_changes(app).await
    }
}

impl BackupPoll {
    /// Wakes the followers of jobs that have changed. On Postgres it also tells daemons which of their jobs were ended or
    /// canceled by other servers.
    async fn check_jobs(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let followed: HashSet<_> = app.events.followed().into_iter().collect();
        let held = if app.store.is_postgres() { app.scheduler.connected().jobs() } else { Vec::new() };
        let wanted: HashSet<_> = followed.iter().chain(&held).copied().collect();
        self.seen.retain(|job, _| wanted.contains(job));
        if wanted.is_empty() {
            return Ok(());
        }
        let wanted: Vec<_> = wanted.into_iter().collect();
        let found = progress::list(&mut app.store.reader().await?, &wanted).await?;
        let mut stopped = Vec::new();
        for (job, progress) in found {
            // A follower of a job that is new here may have read it before its newest change.
            if self.seen.get(&job) != Some(&progress) {
                if followed.contains(&job) {
                    app.events.job_found_changed(job);
                }
                if progress.is_stopped() && held.contains(&job) {
                    stopped.push(job);
                }
                self.seen.insert(job, progress);
            }
        }
        if let Err(error) = replicas::notify_about_jobs(app, &stopped).await {
            // The next pass tries again.
            self.seen.retain(|job, _| !stopped.contains(job));
            return Err(error);
        }
        Ok(())
    }

    async fn read_changes(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let is_unused = app.scheduler.connected().is_empty() && app.network.users.is_empty();
        if !app.store.is_postgres() || is_unused {
            self.position = None;
            return Ok(());
        }
        let mut tx = app.store.reader().await?;
        let Some(position) = self.position else {
            let last = changes::find_last(&mut tx).await?;
            drop(tx);
            // Those that connected earlier may have missed changes since then.
            replicas::resync(app).await?;
            self.position = Some(last);
            return Ok(());
        };
        let new = changes::list_since(&mut tx, position, BATCH_SIZE).await?;
        drop(tx);
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        if first.position == position + 1 {
            let hints: Vec<_> = new.iter().filter_map(|change| Hint::read(&change.hint)).collect();
            replicas::handle(app, &hints).await?;
        } else {
            // Some changes were purged while this server was disconnected.
            replicas::resync(app).await?;
        }
        self.position = Some(last.position);
        Ok(())
    }
}
