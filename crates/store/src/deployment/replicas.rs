//! The server processes of a deployment that others can connect to. Each renews its row while it runs.

use jiff::Timestamp;

use crate::Result;
use crate::engine::{Purpose, Tx, record, sql, statements, values};

record! {
    /// A server process.
    pub struct Replica {
        /// Its id.
        pub id: String,
        /// Where the other servers reach it.
        pub relay_url: String,
    }
}

statements! { "replicas";
    RENEW = sql("insert into replicas (id, relay_url, seen_us) values ($1, $2, $3)
        on conflict (id) do update set relay_url = excluded.relay_url, seen_us = excluded.seen_us")
        .purpose(Purpose::Heartbeat);
    /// The newest first, because the number is limited.
    LIST = sql("select id, relay_url from replicas where seen_us >= $1 and id <> $2 order by seen_us desc limit $3")
        .purpose(Purpose::Heartbeat);
    REMOVE = sql("delete from replicas where id = $1");
    PURGE = sql("delete from replicas where seen_us < $1").purpose(Purpose::Heartbeat);
}

/// Enters a process, or notes that it still runs.
pub async fn renew(tx: &mut Tx, id: &str, relay_url: &str, now: Timestamp) -> Result<()> {
    tx.execute(&RENEW, values![id.to_owned(), relay_url.to_owned(), now]).await.map(|_| ())
}

/// At most `limit` processes besides `own` that were seen at `since` or later.
pub async fn list_others(tx: &mut Tx, own: &str, since: Timestamp, limit: i64) -> Result<Vec<Replica>> {
    tx.fetch(&LIST, values![since, own.to_owned(), limit]).await?.iter().map(Replica::from_row).collect()
}

/// Removes a process that stops.
pub async fn remove(tx: &mut Tx, id: &str) -> Result<()> {
    tx.execute(&REMOVE, values![id.to_owned()]).await.map(|_| ())
}

/// Removes processes that were seen before `before` last.
pub async fn purge(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(&PURGE, values![before]).await
}
