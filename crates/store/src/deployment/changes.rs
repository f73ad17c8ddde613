//! What servers on one database told each other, written in the transaction of the change itself: whoever did not hear it
//! finds it here. Positions are given in the order of commits and without gaps, so that "newer than the last one I know"
//! misses none.

use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, record, sql, statements, values};

record! {
    /// One thing that was told.
    pub struct Change {
        /// Counts from 1.
        pub position: i64,
        /// What it is about, in the words of the server.
        pub hint: String,
    }
}

statements! { "changes";
    /// Its lock orders the transactions that write here.
    NEXT = sql("update change_counter set last = last + 1 where id = 1 returning last");
    INSERT = sql("insert into changes (position, hint, created_us) values ($1, $2, $3)");
    LAST = sql("select last from change_counter where id = 1").purpose(Purpose::Heartbeat);
    LIST_SINCE = sql("select position, hint from changes where position > $1 order by position limit $2")
        .purpose(Purpose::Heartbeat);
    PURGE = sql("delete from changes where created_us < $1");
}

/// Writes one down. Let it be the last statement of its transaction: others wait for it from here on.
///
/// # Errors
/// Only when the database fails.
pub async fn insert(tx: &mut Tx, hint: &str, now: Timestamp) -> Result<()> {
    let position: i64 = tx.fetch_one(&NEXT, Vec::new()).await?.get("last")?;
    tx.execute(&INSERT, values![position, hint.to_owned(), now]).await.map(|_| ())
}

/// The position of the newest.
///
/// # Errors
/// Only when the database fails.
pub async fn find_last(tx: &mut Tx) -> Result<i64> {
    tx.fetch_one(&LAST, Vec::new()).await?.get("last")
}

/// At most `limit` of those after a position, in order; old ones may be gone, which the first position shows.
///
/// # Errors
/// Only when the database fails.
pub async fn list_since(tx: &mut Tx, position: i64, limit: i64) -> Result<Vec<Change>> {
    tx.fetch(&LIST_SINCE, values![position, limit]).await?.iter().map(Change::from_row).collect()
}

/// Removes those written before `before`.
///
/// # Errors
/// Only when the database fails.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
