//! Leases: a named lease allows one of several servers to run a task for a limited time.

use jiff::Timestamp;

use crate::Result;
use crate::engine::{Tx, sql, statements, values};

statements! { "leases";
    TAKE = sql("insert into leases (name, holder, expires_us) values ($1, $2, $3)
        on conflict (name) do update set holder = excluded.holder, expires_us = excluded.expires_us
        where leases.holder = excluded.holder or leases.expires_us <= $4");
    RELEASE = sql("delete from leases where name = $1 and holder = $2");
}

/// Acquires or renews a lease until `expires_at`. Returns false when another holder has it.
pub async fn claim(
    tx: &mut Tx,
    name: &str,
    holder: &str,
    expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    Ok(tx.execute(&TAKE, values![name.to_owned(), holder.to_owned(), expires_at, now]).await? > 0)
}

/// Releases a lease if this holder has it.
pub async fn finish(tx: &mut Tx, name: &str, holder: &str) -> Result<()> {
    tx.execute(&RELEASE, values![name.to_owned(), holder.to_owned()]).await.map(|_| ())
}
