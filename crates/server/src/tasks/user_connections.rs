//! Disconnects users from agents once their token has expired or was deleted: one statement for all connections.

use super::driver::Task;
use crate::context::App;
use crate::network::revoke;

/// The task.
pub(super) struct UserConnectionsTask;

impl Task for UserConnectionsTask {
    const NAME: &'static str = "connections of users";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        revoke::ended_tokens(app).await
    }
}
