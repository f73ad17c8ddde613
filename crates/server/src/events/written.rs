//! Changes that other servers must not miss are also stored, in the transaction of the change. Each server reads them once
//! a second.

use coder_domain::Timestamp;
use coder_store::{Error, Store, Tx, changes};

use super::hint::Hint;

/// Stores a hint, where there can be other servers. Call it last in the transaction.
pub async fn write_down(store: &Store, tx: &mut Tx, hint: Hint, now: Timestamp) -> Result<(), Error> {
    if store.is_postgres() { changes::insert(tx, &hint.write(), now).await } else { Ok(()) }
}
