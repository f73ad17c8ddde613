//! Removes what nobody needs any more: rows of daemons long gone (DAE-6), expired tokens (TOK-9), deleted keys, and
//! journals of jobs that ended long ago, and what servers told each other.

use coder_store::jobs::{self, journals};
use coder_store::{changes, daemons, keys, tokens};
use jiff::SignedDuration;

use super::driver::Task;
use crate::context::App;
use crate::provisioning::session::presence;

/// Rows of daemons not seen for so long go, and tokens that expired so long ago.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Tokens removed in one pass.
const TOKENS: i64 = 10_000;

/// What servers told each other is kept for so long; a server that was away for longer looks at everything.
const TOLD: SignedDuration = SignedDuration::from_mins(10);

/// The task.
pub struct Purge;

impl Task for Purge {
    const NAME: &'static str = "purge";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Ok(before) = app.now().checked_sub(KEPT_FOR) else { return Ok(()) };
        let mut tx = app.store.single().await?;
        let rows = daemons::purge(&mut tx, before, &presence::connected(app)).await?;
        let tokens = tokens::purge(&mut tx, before, TOKENS).await?;
        let journals = journals::purge(&mut tx, before).await?;
        let keys = keys::purge(&mut tx, before).await?;
        jobs::uploads::purge(&mut tx, before).await?;
        if app.store.is_postgres()
            && let Ok(before) = app.now().checked_sub(TOLD)
        {
            changes::purge(&mut tx, before).await?;
        }
        if rows + tokens + journals + keys > 0 {
            tracing::info!(daemons = rows, tokens, journals, keys, "purged");
        }
        Ok(())
    }
}
