//! Short texts between servers that share one Postgres database: LISTEN and NOTIFY on one channel. They are hints: the
//! facts are in the tables, and a lost hint only costs time.
//!
//! A SQLite database has only one server, so there is no channel.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, SqlSafeStr as _};

use crate::engine::postgres::{classify, within};
use crate::engine::{Database, Failure};
use crate::{Error, Result, Store};

/// Postgres accepts a little less than 8000 bytes.
pub const MAX_PAYLOAD_BYTES: usize = 7900;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const NOTIFY: &str = "select pg_notify($1, $2)";

/// Both ends of a channel, each with its own connection. Open a new channel when either fails.
pub struct Channel {
    /// Receives the texts of all servers, including this one.
    pub listener: Listener,
    /// Sends texts to all servers.
    pub notifier: Notifier,
}

/// Receives the texts that were sent since it was opened.
pub struct Listener(PgListener);

/// Sends texts.
pub struct Notifier {
    channel: String,
    connection: PgConnection,
}

impl Store {
    /// Opens a channel. Returns none on SQLite.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn channel(&self, name: &str) -> Result<Option<Channel>> {
        let Database::Postgres(database) = self.database() else { return Ok(None) };
        let opening = open(database.options(), name);
        let opened = tokio::time::timeout(CONNECT_TIMEOUT, opening).await;
        let unavailable = |source| Error::Unavailable { what: "cannot listen on Postgres", source };
        match opened {
            Ok(Ok(channel)) => Ok(Some(channel)),
            Ok(Err(error)) => Err(unavailable(Some(Box::new(error)))),
            Err(_) => Err(unavailable(None)),
        }
    }
}

async fn open(options: &PgConnectOptions, name: &str) -> std::result::Result<Channel, sqlx::Error> {
    // The driver requires a pool. This pool has exactly one connection and never replaces it.
    let pool = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
    let pool = pool.acquire_timeout(CONNECT_TIMEOUT).connect_with(options.clone()).await?;
    let mut listener = PgListener::connect_with(&pool).await?;
    listener.ignore_pool_close_event(true);
    listener.eager_reconnect(false);
    listener.listen(name).await?;
    // A hint need not survive a crash of the database, so the commit does not wait for the disk.
    let hasty = options.clone().options([("synchronous_commit", "off")]);
    let connection = PgConnection::connect_with(&hasty).await?;
    Ok(Channel { listener: Listener(listener), notifier: Notifier { channel: name.to_owned(), connection } })
}

impl Listener {
    /// The next text. Cancel safe.
    ///
    /// # Errors
    /// When the connection is lost. Texts may be lost with it.
    pub async fn next(&mut self) -> Result<String> {
        let lost = |source| Error::Unavailable { what: "the listening connection was lost", source };
        match self.0.try_recv().await {
            Ok(Some(said)) => Ok(said.payload().to_owned()),
            Ok(None) => Err(lost(None)),
            Err(error) => Err(lost(Some(Box::new(error)))),
        }
    }
}

impl Notifier {
    /// Sends a text to all listening servers, including this one.
    ///
    /// # Errors
    /// [`Error::Refused`] when the text is longer than [`MAX_PAYLOAD_BYTES`]; [`Error::Unavailable`].
    pub async fn notify(&mut self, text: &str) -> Result<()> {
        let said = sqlx::query(NOTIFY.into_sql_str()).bind(&self.channel).bind(text);
        let done = within(self.connection.execute(said)).await;
        done.map(|_| ()).map_err(|error| {
            let Failure { error, .. } = classify("notify", error);
            error
        })
    }
}
