//! The adapter for Postgres. It reconnects after the server was restarted.

use std::future::Future;
use std::str::FromStr as _;
use std::time::Duration;

use coder_domain::secret::Secret;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use super::bind;
use super::failure::Failure;
use super::merge::{MergePart, MergedTexts, unchanged};
use super::pool::{ConnectionPool, PooledConnection};
use super::statement::Statement;
use super::value::Value;
use crate::config::{Config, MIN_CONNECTIONS};
use crate::error::Error;

/// A connection that was idle longer is tested before it is used.
const TRUSTED_IDLE: Duration = Duration::from_millis(500);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The server aborts a statement after this time.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// The client stops waiting a little later, in case the response was lost.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(35);

/// The SQL state of a failed cast to a number; see `merge.rs`.
const NOT_A_NUMBER: &str = "22P02";

type Transactions = <sqlx::Postgres as sqlx::Database>::TransactionManager;

pub(crate) struct PostgresDatabase {
    pool: ConnectionPool<PgConnection>,
    options: PgConnectOptions,
    texts: MergedTexts,
}

impl PostgresDatabase {
    pub(crate) fn new(url: &Secret, config: &Config) -> Result<Self, Error> {
        let options = PgConnectOptions::from_str(url.expose()).map_err(|_| {
            Error::Location("the Postgres URL cannot be read: write postgres://user@host/name".into())
        })?;
        let timeout = STATEMENT_TIMEOUT.as_millis().to_string();
        let options = options
            .application_name("coder")
            .options([
                ("statement_timeout", timeout.as_str()),
                ("default_transaction_isolation", "read committed"),
                // Every statement has an index. Without this setting, a plan that was made while a table was small
                // reads the whole table until Postgres updates its statistics.
                ("enable_seqscan", "off"),
                // Statements are short; JIT compilation takes longer than the statement.
                ("jit", "off"),
            ])
            .statement_cache_capacity(256)
            .disable_statement_logging();
        let pool = ConnectionPool::new(config.connections.max(MIN_CONNECTIONS), config.acquire_timeout);
        Ok(Self { pool, options, texts: MergedTexts::default() })
    }

    pub(crate) async fn acquire(&self) -> Result<PooledConnection<PgConnection>, Error> {
        let mut pooled = self.pool.acquire().await?;
        let is_trusted = pooled.idle_for() < TRUSTED_IDLE;
        if let Some(conn) = pooled.get() {
            if is_trusted || within(conn.ping()).await.is_ok() {
                return Ok(pooled);
            }
            drop(pooled.take());
        }
        pooled.put(self.connect().await?);
        Ok(pooled)
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        let unavailable = |source| Error::Unavailable { what: "cannot connect to Postgres", source };
        match tokio::time::timeout(CONNECT_TIMEOUT, PgConnection::connect_with(&self.options)).await {
            Ok(Ok(conn)) => require_version(conn.server_version_num()).map(|()| conn),
            Ok(Err(error)) => Err(unavailable(Some(Box::new(error)))),
            Err(_) => Err(unavailable(None)),
        }
    }

    /// The options for a connection outside of the pool.
    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    pub(super) async fn fetch(
        &self,
        pooled: &mut PooledConnection<PgConnection>,
        repeatable: bool,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<Vec<PgRow>, Failure> {
        let conn = pooled.get().ok_or_else(connection_lost)?;
        let spare = repeatable.then(|| values.clone());
        let first = within(bind::query(statement.postgres, values).fetch_all(conn)).await;
        let error = match first {
            Ok(rows) => return Ok(rows),
            Err(error) => error,
        };
        if !is_broken(&error) {
            return Err(classify(statement.name, error));
        }
        drop(pooled.take());
        // A read can be repeated. For other statements it is unknown whether they were executed.
        let Some(values) = spare else { return Err(classify(statement.name, error)) };
        let conn = pooled.put(self.connect().await?);
        let again = within(bind::query(statement.postgres, values).fetch_all(conn)).await;
        again.map_err(|error| classify(statement.name, error))
    }

    pub(super) async fn execute(
        &self,
        pooled: &mut PooledConnection<PgConnection>,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<u64, Failure> {
        let conn = pooled.get().ok_or_else(connection_lost)?;
        let done = within(bind::query(statement.postgres, values).execute(conn)).await;
        done.map(|done| done.rows_affected()).map_err(|error| {
            if is_broken(&error) {
                drop(pooled.take());
            }
            classify(statement.name, error)
        })
    }

    /// Runs a group of statements as one merged statement.
    pub(super) async fn run(
        &self,
        pooled: &mut PooledConnection<PgConnection>,
        mut group: Vec<MergePart>,
    ) -> Result<(), Failure> {
        if let [_] = group.as_slice()
            && let Some(MergePart { statement, values, must_change }) = group.pop()
        {
            let changed = self.execute(pooled, statement, values).await?;
            return if must_change && changed == 0 {
                Err(Error::Stale { table: statement.table }.into())
            } else {
                Ok(())
            };
        }
        let (text, conn) = (self.texts.get(&group), pooled.get().ok_or_else(connection_lost)?);
        let values = group.iter_mut().flat_map(|part| std::mem::take(&mut part.values)).collect();
        let done = within(bind::query(AssertSqlSafe(text), values).execute(conn)).await;
        done.map(|_| ()).map_err(|error| {
            if is_broken(&error) {
                drop(pooled.take());
            }
            let names = |index: usize| group.get(index).map(|part| part.statement);
            match &error {
                sqlx::Error::Database(details) if details.code().as_deref() == Some(NOT_A_NUMBER) => {
                    match unchanged(details.message()).and_then(names) {
                        Some(statement) => Error::Stale { table: statement.table }.into(),
                        None => classify("several statements", error),
                    }
                }
                _ => classify("several statements", error),
            }
        })
    }

    /// Begins a transaction. Nothing has been changed yet, so a lost connection can be replaced.
    pub(super) async fn begin(&self, pooled: &mut PooledConnection<PgConnection>) -> Result<(), Failure> {
        let conn = pooled.get().ok_or_else(connection_lost)?;
        match within(Transactions::begin(conn, None)).await {
            Err(error) if is_broken(&error) => drop(pooled.take()),
            other => return other.map_err(|error| classify("begin", error)),
        }
        let conn = pooled.put(self.connect().await?);
        within(Transactions::begin(conn, None)).await.map_err(|error| classify("begin", error))
    }

    pub(super) async fn commit(&self, pooled: &mut PooledConnection<PgConnection>) -> Result<(), Failure> {
        let conn = pooled.get().ok_or_else(connection_lost)?;
        within(Transactions::commit(conn)).await.map_err(|error| classify("commit", error))
    }

    pub(super) async fn rollback(&self, pooled: &mut PooledConnection<PgConnection>) -> bool {
        match pooled.get() {
            Some(conn) => within(Transactions::rollback(conn)).await.is_ok(),
            None => false,
        }
    }

    pub(crate) async fn close(&self) {
        for conn in self.pool.close() {
            if let Err(error) = conn.close().await {
                tracing::debug!(%error, "a Postgres connection did not close cleanly");
            }
        }
    }
}

pub(super) async fn script(
    pooled: &mut PooledConnection<PgConnection>,
    text: &'static str,
) -> Result<(), Failure> {
    let conn = pooled.get().ok_or_else(connection_lost)?;
    let done = within(sqlx::raw_sql(text).execute(conn)).await;
    done.map(|_| ()).map_err(|error| classify("migration", error))
}

pub(super) async fn prepare(
    pooled: &mut PooledConnection<PgConnection>,
    statement: &Statement,
) -> Result<(), Failure> {
    let conn = pooled.get().ok_or_else(connection_lost)?;
    let done = within(conn.prepare(statement.postgres.into_sql_str())).await;
    done.map(|_| ()).map_err(|error| classify(statement.name, error))
}

/// Waits for a response with a timeout, because a connection to a vanished peer reports no error.
pub(crate) async fn within<T>(
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())),
    }
}

/// The oldest supported release, as Postgres numbers releases. It is that of the official server.
const OLDEST_RELEASE: u32 = 130_000;

fn require_version(found: Option<u32>) -> Result<(), Error> {
    match found {
        Some(version) if version < OLDEST_RELEASE => {
            let (major, minor) = (version / 10_000, version % 10_000 / 100);
            Err(Error::Location(format!("Postgres {major}.{minor} is too old: use version 13 or newer")))
        }
        _ => Ok(()),
    }
}

fn connection_lost() -> Failure {
    Error::Unavailable { what: "the connection to Postgres was lost", source: None }.into()
}

/// Whether the connection cannot be used any more.
fn is_broken(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(details) => details.code().is_some_and(|code| code.starts_with("57P")),
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed => {
            true
        }
        _ => false,
    }
}

pub(crate) fn classify(statement: &'static str, error: sqlx::Error) -> Failure {
    let unavailable = |what, error| Error::Unavailable { what, source: Some(Box::new(error)) };
    if is_broken(&error) {
        return unavailable("the connection to Postgres was lost", error).into();
    }
    let sqlx::Error::Database(details) = &error else {
        return Error::Refused { statement, source: Box::new(error) }.into();
    };
    if details.is_unique_violation() {
        return taken_column(details.table(), details.constraint()).into();
    }
    if details.is_foreign_key_violation() {
        return Error::Reference(Box::new(error)).into();
    }
    let code = details.code().unwrap_or_default().into_owned();
    match code.as_str() {
        "40001" | "40P01" => Failure {
            error: unavailable("the transaction conflicted with another one", error),
            conflicted: true,
        },
        "57014" => unavailable("a statement took too long", error).into(),
        "53100" => Error::DiskFull(Box::new(error)).into(),
        code if code.starts_with("53") || code.starts_with("08") => {
            unavailable("Postgres is overloaded", error).into()
        }
        _ => Error::Refused { statement, source: Box::new(error) }.into(),
    }
}

/// Unique indexes are named `table__last_column`. The last column of a primary key is `id`, unless its index is named
/// in the same way.
fn taken_column(table: Option<&str>, index: Option<&str>) -> Error {
    let column = index.and_then(|index| index.split_once("__")).map_or("id", |(_, column)| column);
    Error::Conflict { table: table.unwrap_or("?").to_owned(), column: column.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_refused_with_the_next_step() {
        assert!(require_version(Some(130_000)).is_ok());
        assert!(require_version(Some(170_002)).is_ok());
        assert!(require_version(None).is_ok(), "some poolers do not say");
        let refused = require_version(Some(90_624)).expect_err("too old");
        assert!(
            refused.to_string().contains("Postgres 9.6 is too old: use version 13 or newer"),
            "{refused}"
        );
    }

    #[test]
    fn unique_indexes_tell_table_and_column() {
        let taken = taken_column(Some("users"), Some("users__email_lower"));
        assert!(taken.is_conflict_on("users", "email_lower"), "{taken:?}");
        let taken = taken_column(Some("users"), Some("users_pkey"));
        assert!(taken.is_conflict_on("users", "id"), "{taken:?}");
    }
}
