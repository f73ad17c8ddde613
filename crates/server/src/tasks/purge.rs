//! Removes what nobody needs any more: rows of daemons long gone (DAE-6) and expired tokens (TOK-9).

use coder_store::{daemons, tokens};
use jiff::SignedDuration;

use super::driver::Task;
use crate::context::App;

/// Rows of daemons not seen for so long go, and tokens that expired so long ago.
const KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Tokens removed in one pass.
const TOKENS: i64 = 10_000;

/// The task.
pub struct Purge;

impl Task for Purge {
    const NAME: &'static str = "purge";

    async fn run(&mut self, app: &App) -> Result<(), coder_store::Error> {
        let Ok(before) = app.now().checked_sub(KEPT_FOR) else { return Ok(()) };
        let mut tx = app.store.single().await?;
        let rows = daemons::purge(&mut tx, before).await?;
        let keys = tokens::purge(&mut tx, before, TOKENS).await?;
        if rows + keys > 0 {
            tracing::info!(daemons = rows, tokens = keys, "purged");
        }
        Ok(())
    }
}
