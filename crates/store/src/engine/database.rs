//! Selects the engine and connects to it.

use std::sync::Arc;

use super::access::Access;
use super::counters::Counters;
use super::postgres::PostgresDatabase;
use super::sqlite::SqliteDatabase;
use super::tx::{Connection, Tx};
use crate::config::{Config, Location, OpenMode};
use crate::error::Error;

pub(crate) enum Database {
    Sqlite(Box<SqliteDatabase>),
    Postgres(Arc<PostgresDatabase>),
}

impl Database {
    pub(crate) fn new(config: &Config, mode: OpenMode) -> Result<Self, Error> {
        match &config.location {
            Location::Sqlite(path) => Ok(Self::Sqlite(Box::new(SqliteDatabase::new(path, config, mode)))),
            Location::Postgres(url) => Ok(Self::Postgres(Arc::new(PostgresDatabase::new(url, config)?))),
        }
    }

    pub(crate) async fn connect(&self, access: Access, counters: &Arc<Counters>) -> Result<Tx, Error> {
        let connection = match self {
            Self::Sqlite(database) => Connection::Sqlite(database.acquire(access).await?),
            Self::Postgres(database) => Connection::Postgres(database.acquire().await?, Arc::clone(database)),
        };
        Tx::new(connection, access, Arc::clone(counters)).await
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(database) => database.close(),
            Self::Postgres(database) => database.close().await,
        }
    }
}
