//! Disconnects daemons and users whose token ended in the background of a build.

use std::time::Duration;

use coder_store::Error;

use super::driver::WakingTask;
use crate::context::App;
use crate::provisioning::credentials::revoke;

/// Nothing is due until the task is woken.
const IDLE: Duration = Duration::from_secs(3600);

/// The task.
#[derive(Debug)]
pub(super) struct EndedTokensTask;

impl WakingTask for EndedTokensTask {
    const NAME: &'static str = "ended tokens";

    async fn run(&mut self, app: &App) -> Result<Duration, Error> {
        let users = app.ended_tokens.take();
        if users.is_empty() {
            return Ok(IDLE);
        }
        let checked = revoke::tokens_here(app, &users).await;
        if checked.is_err() {
            app.ended_tokens.add(users);
        }
        checked.map(|()| IDLE)
    }
}
