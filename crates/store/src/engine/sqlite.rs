//! The adapter for SQLite: one connection that writes, a few that only read, all on one file in WAL mode.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, SqlSafeStr as _};
use sqlx_core::transaction::TransactionManager as _;

use super::lane::{Lane, Lease};
use super::statement::Statement;
use super::value::Value;
use super::{Failure, Mode, bind};
use crate::Config;
use crate::error::Error;

/// Sixteen readers would use sixteen threads and page caches; four keep both processors busy.
const READERS: usize = 4;

/// Pages kept per connection, in KiB; the operating system caches the file anyway.
const CACHE_KIB: &str = "-1024";

/// How long another process may hold the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

type Transactions = <sqlx::Sqlite as sqlx::Database>::TransactionManager;

pub(crate) struct Lanes {
    write: Lane<SqliteConnection>,
    read: Lane<SqliteConnection>,
    write_options: SqliteConnectOptions,
    read_options: SqliteConnectOptions,
}

impl Lanes {
    pub(crate) fn new(path: &Path, config: &Config) -> Self {
        let synchronous = if config.durable { SqliteSynchronous::Full } else { SqliteSynchronous::Normal };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true)
            .synchronous(synchronous)
            .pragma("cache_size", CACHE_KIB)
            .statement_cache_capacity(256)
            .thread_name(|number| format!("sqlite-{number}"))
            .disable_statement_logging();
        let write_options = options.clone().create_if_missing(true).journal_mode(SqliteJournalMode::Wal);
        Self {
            write: Lane::new(1, config.patience),
            read: Lane::new(READERS, config.patience),
            write_options,
            read_options: options.pragma("query_only", "on"),
        }
    }

    pub(crate) async fn lease(&self, mode: Mode) -> Result<Lease<SqliteConnection>, Error> {
        let (lane, options) = match mode {
            Mode::Read => (&self.read, &self.read_options),
            Mode::Single | Mode::Write => (&self.write, &self.write_options),
        };
        let mut lease = lane.place().await?.lease;
        if lease.get().is_none() {
            if mode != Mode::Read {
                make_private(options.get_filename());
            }
            let opened = SqliteConnection::connect_with(options).await;
            lease.put(opened.map_err(|error| classify("open the database file", error).error)?);
        }
        if mode == Mode::Write {
            begin(conn(&mut lease)).await.map_err(|error| classify("begin", error).error)?;
        }
        Ok(lease)
    }

    pub(crate) async fn close(&self) {
        // Readers first: the last connection to close folds the log into the file.
        for conn in self.read.close().into_iter().chain(self.write.close()) {
            if let Err(error) = conn.close().await {
                tracing::warn!(%error, "could not close the database file cleanly");
            }
        }
    }
}

/// Makes a missing file readable by its owner only: it holds hashes, keys and Terraform states. SQLite gives its log
/// files the same rights. What goes wrong here goes wrong again, and is reported, when SQLite opens the file.
fn make_private(path: &Path) {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    if made.is_ok() {
        tracing::debug!(path = %path.display(), "made the database file");
    }
}

fn conn(lease: &mut Lease<SqliteConnection>) -> &mut SqliteConnection {
    lease.get().expect("a lease of this lane always holds a connection: it is only taken out by drop")
}

async fn begin(conn: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    Transactions::begin(conn, Some("BEGIN IMMEDIATE".into_sql_str())).await
}

pub(super) async fn commit(lease: &mut Lease<SqliteConnection>) -> Result<(), Failure> {
    Transactions::commit(conn(lease)).await.map_err(|error| classify("commit", error))
}

pub(super) async fn rollback(lease: &mut Lease<SqliteConnection>) -> bool {
    Transactions::rollback(conn(lease)).await.is_ok()
}

/// Tells the connection's thread to roll back; whatever is sent after it runs after it.
pub(super) fn abandon(lease: &mut Lease<SqliteConnection>) {
    Transactions::start_rollback(conn(lease));
}

pub(super) async fn fetch(
    lease: &mut Lease<SqliteConnection>,
    statement: &Statement,
    values: Vec<Value>,
) -> Result<Vec<SqliteRow>, Failure> {
    let rows = bind::sqlite(statement.sqlite, values).fetch_all(conn(lease)).await;
    rows.map_err(|error| classify(statement.name, error))
}

pub(super) async fn execute(
    lease: &mut Lease<SqliteConnection>,
    statement: &Statement,
    values: Vec<Value>,
) -> Result<u64, Failure> {
    let done = bind::sqlite(statement.sqlite, values).execute(conn(lease)).await;
    done.map(|done| done.rows_affected()).map_err(|error| classify(statement.name, error))
}

pub(super) async fn script(lease: &mut Lease<SqliteConnection>, text: &'static str) -> Result<(), Failure> {
    let done = sqlx::raw_sql(text).execute(conn(lease)).await;
    done.map(|_| ()).map_err(|error| classify("migration", error))
}

pub(super) async fn prepare(
    lease: &mut Lease<SqliteConnection>,
    statement: &Statement,
) -> Result<(), Failure> {
    let done = conn(lease).prepare(statement.sqlite.into_sql_str()).await;
    done.map(|_| ()).map_err(|error| classify(statement.name, error))
}

/// The disk is full.
const FULL: i32 = 13;
/// A write failed; mostly because of a quota or a limit on the length of files.
const IOERR_WRITE: i32 = 10 | 3 << 8;
/// The shared memory of the write-ahead log cannot grow.
const IOERR_SHMSIZE: i32 = 10 | 19 << 8;

fn classify(statement: &'static str, error: sqlx::Error) -> Failure {
    let unavailable = |what, error| Error::Unavailable { what, source: Some(Box::new(error)) };
    let sqlx::Error::Database(details) = &error else {
        return match error {
            sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) => unavailable("the database file", error).into(),
            _ => Error::Refused { statement, source: error }.into(),
        };
    };
    if details.is_unique_violation() {
        return taken_column(details.message()).into();
    }
    if details.is_foreign_key_violation() {
        return Error::Reference(error).into();
    }
    let code = details.code().and_then(|code| code.parse::<i32>().ok()).unwrap_or_default();
    if matches!(code, FULL | IOERR_WRITE | IOERR_SHMSIZE) {
        return Error::Full(error).into();
    }
    let error = match code & 0xff {
        5 | 6 => unavailable("another process holds the database file", error),
        10 | 14 => unavailable("the database file cannot be read or written", error),
        _ => Error::Refused { statement, source: error },
    };
    error.into()
}

/// Reads `… constraint failed: table.first, table.last`.
fn taken_column(message: &str) -> Error {
    let last = message.rsplit([' ', ',']).next().unwrap_or_default();
    let (table, column) = last.split_once('.').unwrap_or(("?", last));
    Error::Conflict { table: table.to_owned(), column: column.to_owned() }
}
