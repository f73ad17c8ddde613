//! Cancellation of running jobs: tells the daemon, and ends the jobs of official daemons that are disconnected.

use coder_domain::ids::JobId;

use super::end_job::end_job;
use crate::context::App;
use crate::events::hint::Hint;

/// Call it after the commit of a cancellation. Daemons with the extension `cancel` are told at once, by the server that they
/// are connected to. Others see it in the answer to their next message. A job of a disconnected official daemon ends a little
/// later.
pub fn requested(app: &App, job: JobId) {
    app.scheduler.connected().cancel(job, app.now());
    app.events.notify(Hint::Canceled(job));
    watch_disconnected(app, job);
}

/// Runs [`end_if_disconnected`] in the background.
pub fn watch_disconnected(app: &App, job: JobId) {
    let context = app.clone();
    app.lifecycle.spawn("canceled job", async move {
        if let Err(error) = end_if_disconnected(&context, job).await {
            tracing::warn!(job_id = %job, %error, "cannot end a canceled job, leaving it to the reaper");
        }
    });
}

/// Ends a canceled job whose official daemon does not reconnect. Jobs with a session have its grace period instead.
pub async fn end_if_disconnected(app: &App, job: JobId) -> Result<(), coder_store::Error> {
    let limits = Limits::default();
    let Some(row) = jobs::find(&mut app.store.reader().await?, job).await? else { return Ok(()) };
    let is_disconnected = row.completed_at.is_none()
        && row.canceled_at.is_some()
        && row.session_hash.is_none()
        && row.lost_at.is_some();
    if !is_disconnected {
        return Ok(());
    }
    let wait = std::time::Duration::try_from(limits.unheard_after).unwrap_or_default();
    tokio::select! {
        () = app.lifecycle.soft().cancelled() => return Ok(()),
        () = tokio::time::sleep(wait) => {}
    }
    let Some(lost_at) = row.lost_at else { return Ok(()) };
    // The condition is that it has not reconnected.
    let message = format!("Coder: {CANCEL_UNHEARD}.");
    end_job(app, job, While::LostSince(lost_at), CANCEL_UNHEARD, &message).await.map(|_| ())
}
