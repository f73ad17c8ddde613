//! Updates the last-seen time of the daemons connected to this process every minute, in one statement (wire-protocol 1.8).

use coder_store::daemons;

use super::driver::Task;
use crate::context::App;

/// The task.
pub struct Heartbeat;

impl Task for Heartbeat {
    const NAME: &'static str = "daemon heartbeat";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        note_connected(app).await
    }
}

/// Stores which daemons are connected. A server that never had a daemon skips it.
pub(super) async fn note_connected(app: &App) -> Result<(), coder_store::Error> {
    let connected = app.scheduler.connected();
    if connected.has_had_any() {
        let (own, now) = (app.events.outbox().own(), app.now());
        daemons::update_seen(&mut app.store.single().await?, &connected.daemons(), own, now).await?;
    }
    Ok(())
}
