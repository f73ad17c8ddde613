//! What other servers must not miss is also written down, in the transaction of the change: each reads it once a second.

use coder_domain::Timestamp;
use coder_store::{Error, Store, Tx, changes};

use super::hint::Hint;

/// Writes a hint down, where there can be other servers. Let it be the last statement of the transaction.
///
/// # Errors
/// Only when the database fails.
pub async fn write_down(store: &Store, tx: &mut Tx, hint: Hint, now: Timestamp) -> Result<(), Error> {
    if store.is_postgres() { changes::insert(tx, &hint.write(), now).await } else { Ok(()) }
}
