//! `coder server states`: re-encrypts the secrets in the database, including states, with the configured keys.

use clap::Subcommand;
use coder_domain::clock::{Clock as _, SystemClock};
use coder_store::{StateKeys, encryption};

use super::database;
use super::flags::Database;
use crate::context::Context;

/// The action.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Command {
    /// Encrypt all secrets with the first of the given keys. The others are not needed any more then.
    Rotate,
    /// Decrypt all secrets, so that no key is needed any more.
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
    let store = database::open_existing(flags).await?;
    // A running server with keys would encrypt new values again.
    let _lock = if to.is_empty() { database::lock(flags)? } else { None };
    let rotated = encryption::rotate(&store, &to, SystemClock.now()).await;
    store.close().await;
    let rotated = rotated?;
    let done = match to.current() {
        Some(key) => format!("are encrypted with the key {key}"),
        None => "are stored plain".to_owned(),
    };
    ctx.printer.note(&format!("All secrets {done}: {} of {} changed.", rotated.changed, rotated.total));
    Ok(())
}
