//! [`Store`]: opens the database and hands out connections.

use std::sync::Arc;

use jiff::Timestamp;

use crate::config::{Config, Location, MIN_CONNECTIONS, OpenMode};
use crate::encryption::keys::StateKeys;
use crate::engine::{Access, Counters, Database, StatementCounts, Tx};
use crate::error::{Error, Result};
use crate::migrations;
use crate::transaction::finish_attempt;

/// A handle on the database; cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    database: Database,
    counters: Arc<Counters>,
    connections: usize,
    state_keys: StateKeys,
}

impl Store {
    /// Opens the database and migrates its schema. A new database gets the default organization (named `coder`), the
    /// reserved provisioner keys and a deployment id.
    ///
    /// # Errors
    /// [`Error::SchemaTooNew`] and [`Error::MigrationChanged`] when this release must not touch the database,
    /// [`Error::Unavailable`] when it cannot be reached.
    pub async fn open(config: &Config, now: Timestamp) -> Result<Self> {
        let store = Self::open_unchecked(config, OpenMode::CreateIfMissing)?;
        migrations::run(&store.0.database, &store.0.counters, now).await?;
        Ok(store)
    }

    /// Opens a database that [`Store::open`] has created, and changes nothing.
    ///
    /// # Errors
    /// [`Error::DatabaseMissing`] when there is none, [`Error::SchemaTooOld`] when its schema is not up to date, and
    /// those of [`Store::open`].
    pub async fn open_existing(config: &Config) -> Result<Self> {
        if let Location::Sqlite(path) = &config.location
            && matches!(path.try_exists(), Ok(false))
        {
            return Err(Error::DatabaseMissing);
        }
        let store = Self::open_unchecked(config, OpenMode::Existing)?;
        migrations::require_newest(&store.0.database, &store.0.counters).await?;
        Ok(store)
    }

    fn open_unchecked(config: &Config, mode: OpenMode) -> Result<Self> {
        Ok(Self(Arc::new(Inner {
            database: Database::new(config, mode)?,
            counters: Arc::default(),
            connections: config.connections.max(MIN_CONNECTIONS),
            state_keys: config.state_keys.clone(),
        })))
    }

    /// Starts reading. Each statement sees the newest committed rows; there is no snapshot across statements.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn reader(&self) -> Result<Tx> {
        self.connect(Access::Read).await
    }

    /// For one changing statement, which is its own transaction. Saves two round trips.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn single(&self) -> Result<Tx> {
        self.connect(Access::Autocommit).await
    }

    /// Begins a transaction. End it with [`Tx::commit`]. Prefer [`Store::write`], which also retries.
    ///
    /// # Errors
    /// [`Error::Unavailable`].
    pub async fn begin(&self) -> Result<Tx> {
        self.connect(Access::Transaction).await
    }

    async fn connect(&self, access: Access) -> Result<Tx> {
        let mut tx = self.0.database.connect(access, &self.0.counters).await?;
        tx.set_state_keys(self.0.state_keys.clone());
        Ok(tx)
    }

    /// Runs `body` as one transaction. Runs it again when Postgres reports a conflict with another transaction.
    ///
    /// `body` must await nothing but the store and must have no effect outside of the transaction. Use
    /// [`transaction!`](crate::transaction!) instead when the future must be `Send` and `body` borrows anything.
    ///
    /// # Errors
    /// The error of `body`, after a rollback, or this crate's error.
    pub async fn write<T, E, F>(&self, mut body: F) -> std::result::Result<T, E>
    where
        F: AsyncFnMut(&mut Tx) -> std::result::Result<T, E>,
        E: From<Error>,
    {
        let mut attempt = 1;
        loop {
            let mut tx = self.begin().await?;
            let outcome = body(&mut tx).await;
            if let Some(outcome) = finish_attempt(tx, outcome, &mut attempt).await {
                return outcome;
            }
        }
    }

    /// The number of statements since this store was opened.
    #[must_use]
    pub fn statement_counts(&self) -> StatementCounts {
        self.0.counters.read()
    }

    /// The maximum number of Postgres connections. A caller that runs many tasks at once should use fewer.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.connections
    }

    /// Whether the engine is Postgres. Several servers can share only a Postgres database.
    #[must_use]
    pub fn is_postgres(&self) -> bool {
        matches!(self.0.database, Database::Postgres(_))
    }

    /// The database, for callers that need their own connection.
    pub(crate) fn database(&self) -> &Database {
        &self.0.database
    }

    /// Closes all idle connections and refuses new work. SQLite moves its log into the file.
    pub async fn close(&self) {
        self.0.database.close().await;
    }
}
