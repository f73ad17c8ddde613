//! The log of hints between servers on one database. A hint is written in the transaction of the change it is about, so
//! a server that missed the notification finds it here. Positions follow the order of commits without gaps, so a server
//! that reads everything after its last position misses none.

use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, record, sql, statements, values};

record! {
    /// One hint.
    pub struct Change {
        /// Counts from 1.
        pub position: i64,
        /// The text of the hint, as the server encodes it.
        pub hint: String,
    }
}

statements! { "changes";
    /// The lock of this row puts the writing transactions in order.
    NEXT = sql("update change_counter set last = last + 1 where id = 1 returning last");
    INSERT = sql("insert into changes (position, hint, created_us) values ($1, $2, $3)");
    LAST = sql("select last from change_counter where id = 1").purpose(Purpose::Heartbeat);
    LIST_SINCE = sql("select position, hint from changes where position > $1 order by position limit $2")
        .purpose(Purpose::Heartbeat);
    PURGE = sql("delete from changes where created_us < $1");
}

/// Appends a hint. Make it the last statement of its transaction, because other writers wait for the commit from here
/// on.
pub async fn insert(tx: &mut Tx, hint: &str, now: Timestamp) -> Result<()> {
    let position: i64 = tx.fetch_one(&NEXT, Vec::new()).await?.get("last")?;
    tx.execute(&INSERT, values![position, hint.to_owned(), now]).await.map(|_| ())
}

/// The position of the newest hint.
pub async fn find_last(tx: &mut Tx) -> Result<i64> {
    tx.fetch_one(&LAST, Vec::new()).await?.get("last")
}

/// At most `limit` hints after a position, in order. Old hints may have been purged; then the first position has a gap
/// to the requested one.
pub async fn list_since(tx: &mut Tx, position: i64, limit: i64) -> Result<Vec<Change>> {
    tx.fetch(&LIST_SINCE, values![position, limit]).await?.iter().map(Change::from_row).collect()
}

/// Removes hints that were written before `before`.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
