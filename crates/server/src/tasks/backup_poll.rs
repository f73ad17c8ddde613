//! Every second one look whether jobs wait that a daemon waiting here could take (ACQ-6), one at the jobs that are followed
//! here, and on Postgres one at what other servers wrote down: covers lost wake-ups. Each is one statement, whatever the
//! number of daemons and followers, and none where there are none.

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

/// A clock that moved so much more or less than time passed was set.
const SET: SignedDuration = SignedDuration::from_secs(10);

/// Most that is read in one pass.
const CHANGES: i64 = 500;

/// The task.
#[derive(Debug, Default)]
pub struct BackupPoll {
    /// Up to where it was read; none while nobody is connected.
    position: Option<i64>,
    /// What was last seen of the jobs that are followed or held here.
    seen: HashMap<JobId, Progress>,
    clock: ClockJump,
}

impl Task for BackupPoll {
    const NAME: &'static str = "backup poll";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        if self.clock.is_set(app.now(), SET) {
            // Other servers judge by the last signs of life, until they hear this one.
            heartbeat::note_connected(app).await?;
        }
        app.scheduler.look().await?;
        self.look_at_jobs(app).await?;
        self.read_changes(app).await
    }
}

impl BackupPoll {
    /// Wakes the followers of jobs that have changed, and where there can be other servers tells daemons what became of
    /// the jobs that they hold.
    async fn look_at_jobs(&mut self, app: &App) -> Result<(), coder_store::Error> {
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
            // A job that is new here was perhaps looked at before its newest change.
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
        if let Err(error) = replicas::tell_of_jobs(app, &stopped).await {
            // Seen again in the next pass.
            self.seen.retain(|job, _| !stopped.contains(job));
            return Err(error);
        }
        Ok(())
    }

    async fn read_changes(&mut self, app: &App) -> Result<(), coder_store::Error> {
        if !app.store.is_postgres() || app.scheduler.connected().is_empty() {
            self.position = None;
            return Ok(());
        }
        let mut tx = app.store.reader().await?;
        let Some(position) = self.position else {
            let last = changes::find_last(&mut tx).await?;
            drop(tx);
            // Whoever joined before this looked at what was true then.
            replicas::look_at_everything(app).await?;
            self.position = Some(last);
            return Ok(());
        };
        let new = changes::list_since(&mut tx, position, CHANGES).await?;
        drop(tx);
        let (Some(first), Some(last)) = (new.first(), new.last()) else { return Ok(()) };
        if first.position == position + 1 {
            let hints: Vec<_> = new.iter().filter_map(|change| Hint::read(&change.hint)).collect();
            replicas::heed(app, &hints).await?;
        } else {
            // This server was away for so long that some are gone.
            replicas::look_at_everything(app).await?;
        }
        self.position = Some(last.position);
        Ok(())
    }
}
