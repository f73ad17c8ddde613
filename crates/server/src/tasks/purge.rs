//! Removes old rows: daemons that were not seen for long (DAE-6), expired tokens (TOK-9), deleted keys, journals of ended
//! jobs, changes that all servers have read, logs of agents that were replaced, and old sessions of people.

use coder_store::jobs::{self, journals};
use coder_store::workspaces::{agent_logs, connection_log};
use coder_store::{changes, daemons, keys, tokens};
use jiff::SignedDuration;

use super::driver::Task;
use crate::context::App;
use crate::provisioning::session::presence;

/// How long daemons, expired tokens, deleted keys and journals are kept.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Tokens removed in one pass.
const BATCH_SIZE: i64 = 10_000;

/// How long changes are kept. A server that was disconnected for longer reads everything.
const CHANGES_KEPT_FOR: SignedDuration = SignedDuration::from_mins(10);

/// How long sessions of people are kept.
const SESSIONS_KEPT_FOR: SignedDuration = SignedDuration::from_hours(90 * 24);

/// The task.
pub struct Purge;

impl Task for Purge {
    const NAME: &'static str = "purge";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Ok(before) = app.now().checked_sub(KEPT_FOR) else { return Ok(()) };
        let mut tx = app.store.single().await?;
        let rows = daemons::purge(&mut tx, before, &presence::connected(app)).await?;
        let tokens = tokens::purge(&mut tx, before, BATCH_SIZE).await?;
        let journals = journals::purge(&mut tx, before).await?;
        let keys = keys::purge(&mut tx, before).await?;
        jobs::uploads::purge(&mut tx, before).await?;
        agent_logs::purge(&mut tx, before).await?;
        if let Ok(before) = app.now().checked_sub(SESSIONS_KEPT_FOR) {
            connection_log::purge(&mut tx, before).await?;
        }
        if app.store.is_postgres()
            && let Ok(before) = app.now().checked_sub(CHANGES_KEPT_FOR)
        {
            changes::purge(&mut tx, before).await?;
        }
        if rows + tokens + journals + keys > 0 {
            tracing::info!(daemons = rows, tokens, journals, keys, "purged");
        }
        Ok(())
    }
}
