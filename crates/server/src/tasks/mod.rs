//! What runs in the background. `start` is the list of all of it.

pub mod backup_poll;
mod clock_jump;
pub mod driver;
pub mod heartbeat;
pub mod purge;
pub mod purge_files;
pub mod reap_jobs;
mod release_memory;
pub mod replicas;
mod unserved;

use std::time::Duration;

use coder_store::encryption;
use coder_store::encryption::rotation::RotationReport;

use crate::context::App;
use crate::provisioning::credentials::revoke;
use crate::provisioning::rescue::lost;

/// Starts every task; each ends with the soft stop.
pub fn start(app: &App) {
    let seconds = Duration::from_secs;
    driver::every(app, seconds(1), driver::First::Later, backup_poll::BackupPoll::default());
    driver::every(app, seconds(60), driver::First::Later, heartbeat::Heartbeat);
    driver::every(
        app,
        app.config.provisioning.reap_every,
        driver::First::AtOnce,
        reap_jobs::ReapJobs::default(),
    );
    driver::every(app, seconds(600), driver::First::AtOnce, purge::Purge);
    driver::every(app, seconds(600), driver::First::AtOnce, purge_files::PurgeFiles::default());
    driver::every(app, seconds(5), driver::First::Later, release_memory::ReleaseMemory::default());
    let context = app.clone();
    app.lifecycle.spawn("jobs of before the start", async move { take_over(&context).await });
    let context = app.clone();
    app.lifecycle.spawn("encryption of older secrets", async move { encrypt_older(&context).await });
    if app.config.provisioning.wake_ups {
        let context = app.clone();
        app.lifecycle.spawn("other servers", async move { replicas::run(&context).await });
    }
    let context = app.clone();
    app.lifecycle.spawn("claims under way", async move { finish_claims(&context).await });
}

/// Brings secrets that were stored plain, or under another key, under the present key. Nothing waits for it.
async fn encrypt_older(app: &App) {
    let mut wait = Duration::from_secs(1);
    loop {
        let done = tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            done = encryption::complete(&app.store, app.now()) => done,
        };
        match done {
            Ok(None) => return,
            Ok(Some(RotationReport { changed, total })) => {
                return tracing::info!(
                    changed,
                    total,
                    "all secrets in the database are under the present key"
                );
            }
            Err(error) => {
                tracing::warn!(%error, "secrets in the database cannot be encrypted now; trying again")
            }
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(600)),
        }
    }
}

/// Looks once at what an earlier process of the server left: jobs whose daemons may come back, and keys that expired.
async fn take_over(app: &App) {
    let mut wait = Duration::from_millis(100);
    loop {
        let done = async {
            lost::recover(app).await?;
            revoke::expired_meanwhile(app).await
        };
        match done.await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "jobs of before the start cannot be looked at now"),
        }
        tokio::select! {
            () = app.lifecycle.soft().cancelled() => return,
            () = tokio::time::sleep(wait) => wait = (wait * 2).min(Duration::from_secs(30)),
        }
    }
}

/// Keeps the soft stop waiting until every daemon has left and every claim has its result in the database: a job that
/// was taken at the last moment is failed, not left to the reaper.
async fn finish_claims(app: &App) {
    app.lifecycle.soft().cancelled().await;
    loop {
        app.scheduler.settled().await;
        if app.scheduler.connected().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
