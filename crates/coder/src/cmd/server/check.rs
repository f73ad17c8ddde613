//! `coder server check`: checks the invariants of the database.

use anyhow::bail;

use super::database;
use super::flags::Database;
use crate::context::Context;

pub(super) async fn run(ctx: &Context, flags: &Database) -> anyhow::Result<()> {
    let store = database::open_existing(flags).await?;
    let mut broken = coder_store::check::check(&store).await?;
    broken.extend(coder_store::encryption::rotation::list_undecryptable(&store).await?);
    store.close().await;
    for rule in &broken {
        ctx.printer.data(&rule.to_string());
    }
    if broken.is_empty() {
        ctx.printer.note("The database keeps all its rules.");
        return Ok(());
    }
    bail!("the database breaks {} of its rules", broken.len())
}
