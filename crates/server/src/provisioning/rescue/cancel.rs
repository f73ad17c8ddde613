//! A job was asked to stop: telling its daemon at once, by force after a while, and ending what nobody hears.

use coder_domain::ids::JobId;
use coder_domain::job::lifecycle::{CANCEL_UNDELIVERED, Limits};
use coder_store::jobs::{self, While};

use super::end_job::give_up;
use crate::context::App;
use crate::events::hint::Hint;

/// Call it after the commit of a cancel. The daemon is told if it understands, over whichever server it is connected to;
/// all others see it in the answer to their next message. A job whose official daemon is away ends a little later.
pub fn requested(app: &App, job: JobId) {
    app.scheduler.connected().cancel(job, app.now());
    app.events.tell(Hint::Canceled(job));
    watch_unheard(app, job);
}

/// Waits in the background for [`unheard`].
pub fn watch_unheard(app: &App, job: JobId) {
    let context = app.clone();
    app.lifecycle.spawn("canceled job", async move {
        if let Err(error) = unheard(&context, job).await {
            tracing::warn!(%job, %error, "a canceled job waits for the reaper");
        }
    });
}

/// Ends a canceled job whose official daemon is away for good. A session of ours has its grace instead.
pub async fn unheard(app: &App, job: JobId) -> Result<(), coder_store::Error> {
    let limits = Limits::default();
    let Some(row) = jobs::find(&mut app.store.reader().await?, job).await? else { return Ok(()) };
    let is_away = row.completed_at.is_none()
        && row.canceled_at.is_some()
        && row.session_hash.is_none()
        && row.lost_at.is_some();
    if !is_away {
        return Ok(());
    }
    let wait = std::time::Duration::try_from(limits.cancel_undelivered_after).unwrap_or_default();
    tokio::select! {
        () = app.lifecycle.soft().cancelled() => return Ok(()),
        () = tokio::time::sleep(wait) => {}
    }
    let Some(lost_at) = row.lost_at else { return Ok(()) };
    // The guard is that it has not come back; the time has been waited for.
    let said = format!("Coder: {CANCEL_UNDELIVERED}.");
    give_up(app, job, While::LostSince(lost_at), CANCEL_UNDELIVERED, &said).await.map(|_| ())
}
