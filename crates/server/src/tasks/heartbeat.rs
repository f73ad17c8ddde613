//! Every minute the daemons connected to this process are noted as seen: one statement for all (wire-protocol 1.8).

use coder_store::daemons;

use super::driver::Task;
use crate::context::App;

/// The task.
pub struct Heartbeat;

impl Task for Heartbeat {
    const NAME: &'static str = "daemon heartbeat";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let connected = app.scheduler.connected().daemons();
        if !connected.is_empty() {
            daemons::update_seen(&mut app.store.single().await?, &connected, app.now()).await?;
        }
        Ok(())
    }
}
