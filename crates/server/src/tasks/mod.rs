//! Background tasks. `start` lists all of them.

pub mod agents;
pub mod backup_poll;
mod clock_jump;
pub mod driver;
pub mod heartbeat;
pub mod mesh;
pub mod purge;
pub mod purge_files;
pub mod reap_jobs;
mod release_memory;
pub mod replicas;
pub mod schedules;
mod unserved;
mod user_connections;

use std::sync::Arc;
use std::time::Duration;

use coder_domain::backoff::Backoff;
use coder_store::encryption::rotation::RotationReport;
use coder_store::{Error, encryption};

use crate::context::App;
use crate::provisioning::credentials::revoke;
use crate::provisioning::rescue::lost;
use crate::retry::retry_with_backoff;

/// Starts every task; each ends with the soft stop.
pub fn start(app: &App) {
    let seconds = Duration::from_secs;
    driver::every(app, seconds(1), driver::FirstRun::Later, backup_poll::BackupPoll::default());
    driver::every(app, seconds(60), driver::FirstRun::Later, heartbeat::Heartbeat);
    driver::every(
        app,
        app.config.provisioning.reap_every,
        driver::FirstRun::AtOnce,
        reap_jobs::ReapJobs::default(),
    );
    driver::every(app, seconds(60), driver::FirstRun::Later, user_connections::UserConnectionsTask);
    driver::every(app, seconds(15), driver::FirstRun::Later, agents::Contacts);
    driver::every(app, seconds(1), driver::FirstRun::Later, agents::AgentReports);
    driver::every(app, seconds(600), driver::FirstRun::AtOnce, purge::Purge);
    driver::every(app, seconds(600), driver::FirstRun::AtOnce, purge_files::PurgeFiles::default());
    driver::every(app, seconds(5), driver::FirstRun::Later, release_memory::ReleaseMemory::default());
    driver::when_due(
        app,
        Arc::clone(&app.schedules_changed),
        app.config.schedules.check_every,
        schedules::WorkspaceSchedules::default(),
    );
    let context = app.clone();
    app.lifecycle.spawn("recovery of open jobs", async move { take_over(&context).await });
    let context = app.clone();
    app.lifecycle.spawn("encryption of stored secrets", async move { encrypt_older(&context).await });
    let context = app.clone();
    app.lifecycle.spawn("restart of the relay", async move {
        context.lifecycle.soft().cancelled().await;
        context.network.restart_relay();
    });
    let context = app.clone();
    app.lifecycle.spawn("connections to other servers", async move { mesh::run(&context).await });
    if app.config.provisioning.wake_ups {
        let context = app.clone();
        app.lifecycle.spawn("replica notifications", async move { replicas::run(&context).await });
    }
    let context = app.clone();
    app.lifecycle.spawn("claims in progress", async move { finish_claims(&context).await });
}

/// Encrypts secrets that were stored unencrypted, or with an older key, with the current key.
async fn encrypt_older(app: &App) {
    let attempt = || encryption::complete(&app.store, app.now());
    let is_worth_it = |error: &Error| {
        tracing::warn!(%error, "cannot encrypt the secrets in the database, trying again");
        true
    };
    let delays = Backoff::new(Duration::from_secs(1), Duration::from_secs(600));
    let work = retry_with_backoff(&app.lifecycle, delays, attempt, is_worth_it);
    // An attempt may take long, so the stop also interrupts it. The next start continues.
    let done = app.lifecycle.soft().run_until_cancelled(work).await;
    if let Some(Some(Ok(Some(RotationReport { changed, total })))) = done {
        tracing::info!(changed, total, "all secrets in the database are encrypted with the current key");
    }
}

/// Recovers once from an earlier process of the server: jobs whose daemons may reconnect, and keys that expired meanwhile.
async fn take_over(app: &App) {
    let attempt = || async {
        lost::recover(app).await?;
        revoke::expired_while_stopped(app).await
    };
    let is_worth_it = |error: &Error| {
        tracing::warn!(%error, "cannot recover the jobs of the previous process, trying again");
        true
    };
    let delays = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
    if retry_with_backoff(&app.lifecycle, delays, attempt, is_worth_it).await.is_none() {
        tracing::warn!("stopped before the jobs of the previous process were recovered");
    }
}

/// Delays the end of the soft stop until every daemon has disconnected and every claim is stored. A job that was claimed at
/// the last moment is failed here and not left to the reaper.
async fn finish_claims(app: &App) {
    app.lifecycle.soft().cancelled().await;
    loop {
        app.scheduler.claims_finished().await;
        if app.scheduler.connected().is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
