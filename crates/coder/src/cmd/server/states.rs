//! `coder server states`: brings the states in the database under the keys that are configured now.

use clap::Subcommand;
use coder_store::{StateKeys, state_rotation};

use super::database;
use super::flags::Database;
use crate::context::Context;

/// What to do with the states.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Command {
    /// Encrypt all states with the first of the given keys; then the others are not needed any more.
    Rotate,
    /// Store all states plain, so that no key is needed any more.
    Decrypt,
}

pub(super) async fn run(ctx: &Context, flags: &Database, command: Command) -> anyhow::Result<()> {
    let keys = database::state_keys(flags)?;
    anyhow::ensure!(
        !keys.is_empty(),
        "no key is given: pass --state-encryption-keys, or set CODER_STATE_ENCRYPTION_KEYS"
    );
    let to = match command {
        Command::Rotate => keys,
        Command::Decrypt => StateKeys::default(),
    };
    let store = database::open(flags).await?;
    let rotated = state_rotation::rotate(&store, &to).await;
    store.close().await;
    let rotated = rotated?;
    let done = match to.current() {
        Some(key) => format!("are encrypted with the key {key}"),
        None => "are stored plain".to_owned(),
    };
    ctx.printer.note(&format!("All {} states {done}; {} were changed.", rotated.total, rotated.changed));
    Ok(())
}
