//! The adapter for SQLite: one writing connection and a few reading ones on one file in WAL mode.

use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::Value as Raw;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, ErrorCode, OpenFlags};

use super::access::Access;
use super::failure::Failure;
use super::pool::{ConnectionPool, PooledConnection};
use super::row::Unreadable;
use super::statement::Statement;
use super::value::Value;
use crate::config::{Config, OpenMode};
use crate::error::Error;

/// Statements run on the calling thread: a statement takes microseconds, less than a switch to another thread and back.
/// For values larger than this, in bytes, the other tasks of that thread move to another one first.
const LARGE_VALUE_BYTES: usize = 256 * 1024;

/// Each reader has its own page cache. Four readers suffice, because a statement takes microseconds.
const READER_COUNT: usize = 4;

/// Page cache of a connection in KiB, allocated on demand. The operating system caches the file too. The writer uses
/// the newest pages of every index again and again, so its cache is larger.
const READ_CACHE_KIB: i64 = -1024;
const WRITE_CACHE_KIB: i64 = -4096;

/// Pages in the write-ahead log before a checkpoint (32 MiB). A checkpoint flushes the disk twice and blocks writers;
/// under load most pages are rewritten before the next one, so seldom checkpoints write less.
const WAL_PAGES: i64 = 8192;

/// How long to wait for another process that has locked the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Prepared statements kept per connection.
const CACHED_STATEMENTS: usize = 256;

pub(crate) struct SqliteDatabase {
    writer: ConnectionPool<Connection>,
    readers: ConnectionPool<Connection>,
    path: PathBuf,
    durable: bool,
    open_mode: OpenMode,
}

impl SqliteDatabase {
    pub(crate) fn new(path: &Path, config: &Config, open_mode: OpenMode) -> Self {
        Self {
            writer: ConnectionPool::new(1, config.acquire_timeout),
            readers: ConnectionPool::new(READER_COUNT, config.acquire_timeout),
            path: path.to_owned(),
            durable: config.durable,
            open_mode,
        }
    }

    pub(crate) async fn acquire(&self, access: Access) -> Result<PooledConnection<Connection>, Error> {
        let pool = if access == Access::Read { &self.readers } else { &self.writer };
        let mut conn = pool.acquire().await?;
        if conn.get().is_none() {
            let opened =
                self.connect(access).map_err(|error| classify("open the database file", error).error);
            conn.put(opened?);
        }
        Ok(conn)
    }

    fn connect(&self, access: Access) -> rusqlite::Result<Connection> {
        let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        if access != Access::Read && self.open_mode == OpenMode::CreateIfMissing {
            make_private(&self.path);
            flags |= OpenFlags::SQLITE_OPEN_CREATE;
        }
        let conn = Connection::open_with_flags(&self.path, flags)?;
        conn.busy_timeout(BUSY_TIMEOUT)?;
        conn.set_prepared_statement_cache_capacity(CACHED_STATEMENTS);
        // Without this, SQLite plans a prepared statement again for each new value that it compares with the condition
        // of a partial index.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        if access != Access::Read {
            conn.pragma_update(None, "journal_mode", "wal")?;
            conn.pragma_update(None, "wal_autocheckpoint", WAL_PAGES)?;
            // Encrypted or deleted secrets must leave no copy on free pages.
            conn.pragma_update(None, "secure_delete", "on")?;
        }
        conn.pragma_update(None, "synchronous", if self.durable { "full" } else { "normal" })?;
        conn.pragma_update(None, "foreign_keys", "on")?;
        conn.pragma_update(
            None,
            "cache_size",
            if access == Access::Read { READ_CACHE_KIB } else { WRITE_CACHE_KIB },
        )?;
        if access == Access::Read {
            conn.pragma_update(None, "query_only", "on")?;
        }
        Ok(conn)
    }

    pub(crate) fn close(&self) {
        // The writer closes last, because the last connection moves the log into the file.
        for conn in self.readers.close().into_iter().chain(self.writer.close()) {
            if let Err((_, error)) = conn.close() {
                tracing::warn!(%error, "could not close the database file cleanly");
            }
        }
    }
}

/// Creates a missing file so that only its owner can read it: it holds hashes, keys and Terraform states. SQLite gives
/// its log files the same permissions. An error is ignored here, because SQLite reports it when it opens the file.
fn make_private(path: &Path) {
    let made = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    if made.is_ok() {
        tracing::debug!(path = %path.display(), "made the database file");
    }
}

fn open(conn: &mut PooledConnection<Connection>) -> &mut Connection {
    conn.get().expect("acquire puts a connection in, and only drop takes it out")
}

pub(super) fn begin(conn: &mut PooledConnection<Connection>) -> Result<(), Failure> {
    control(conn, "begin immediate").map_err(|error| classify("begin", error))
}

pub(super) fn commit(conn: &mut PooledConnection<Connection>) -> Result<(), Failure> {
    control(conn, "commit").map_err(|error| classify("commit", error))
}

/// Rolls back a transaction. Returns whether that worked.
pub(super) fn rollback(conn: &mut PooledConnection<Connection>) -> bool {
    control(conn, "rollback").is_ok()
}

/// Runs a cached statement without parameters.
fn control(conn: &mut PooledConnection<Connection>, text: &'static str) -> rusqlite::Result<()> {
    open(conn).prepare_cached(text)?.raw_execute().map(|_| ())
}

/// One row. All rows of a statement share the names of the columns.
pub(crate) struct SqliteRow {
    columns: Arc<[String]>,
    values: Vec<Raw>,
}

/// A type that a column of this engine can be read as.
pub(super) trait FromRaw: Sized {
    fn from_raw(raw: &Raw) -> Option<Self>;
}

macro_rules! from_raw {
    ($($kind:ty: $pattern:pat => $value:expr,)*) => {
        $(impl FromRaw for $kind {
            fn from_raw(raw: &Raw) -> Option<Self> {
                match raw {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        })*
    };
}

from_raw! {
    bool: Raw::Integer(number) => *number != 0,
    i64: Raw::Integer(number) => *number,
    String: Raw::Text(text) => text.clone(),
    Vec<u8>: Raw::Blob(bytes) => bytes.clone(),
}

impl SqliteRow {
    /// Finds a column, within the given range if there is one.
    pub(super) fn get<T: FromRaw>(
        &self,
        column: &str,
        among: Option<&Range<usize>>,
    ) -> Result<Option<T>, Unreadable> {
        let among = among.cloned().unwrap_or(0..self.columns.len());
        let names = self.columns.get(among.clone()).ok_or(Unreadable::NoColumn)?;
        let index = names.iter().position(|name| name == column).ok_or(Unreadable::NoColumn)?;
        match self.values.get(among.start + index).ok_or(Unreadable::NoColumn)? {
            Raw::Null => Ok(None),
            raw => T::from_raw(raw).map(Some).ok_or(Unreadable::Kind),
        }
    }

    pub(super) fn is_null(&self, index: usize) -> bool {
        matches!(self.values.get(index), None | Some(Raw::Null))
    }
}

pub(super) fn fetch(
    conn: &mut PooledConnection<Connection>,
    statement: &Statement,
    values: &[Value],
) -> Result<Vec<SqliteRow>, Failure> {
    off_worker(values, || rows(open(conn), statement, values))
        .map_err(|error| classify(statement.name, error))
}

fn rows(conn: &Connection, statement: &Statement, values: &[Value]) -> rusqlite::Result<Vec<SqliteRow>> {
    let mut prepared = bound(conn, statement, values)?;
    let columns: Arc<[String]> = prepared.column_names().map(str::to_owned).collect();
    let mut found = Vec::new();
    let mut rows = prepared.raw_query();
    while let Some(row) = rows.next()? {
        let value = |index| row.get_ref(index).map(to_owned_raw);
        let values = (0..columns.len()).map(value).collect::<rusqlite::Result<_>>()?;
        found.push(SqliteRow { columns: Arc::clone(&columns), values });
    }
    Ok(found)
}

/// Text that is not UTF-8 becomes bytes, which cannot be read as text.
fn to_owned_raw(value: ValueRef<'_>) -> Raw {
    match value {
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Raw::Text(text.to_owned()),
            Err(_) => Raw::Blob(bytes.to_vec()),
        },
        ValueRef::Null => Raw::Null,
        ValueRef::Integer(number) => Raw::Integer(number),
        ValueRef::Real(number) => Raw::Real(number),
        ValueRef::Blob(bytes) => Raw::Blob(bytes.to_vec()),
    }
}

pub(super) fn execute(
    conn: &mut PooledConnection<Connection>,
    statement: &Statement,
    values: &[Value],
) -> Result<u64, Failure> {
    let changed = off_worker(values, || bound(open(conn), statement, values)?.raw_execute());
    let changed = changed.map_err(|error| classify(statement.name, error))?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

fn bound<'c>(
    conn: &'c Connection,
    statement: &Statement,
    values: &[Value],
) -> rusqlite::Result<CachedStatement<'c>> {
    let mut prepared = conn.prepare_cached(statement.sqlite)?;
    for index in 1..=prepared.parameter_count() {
        // For SQLite `$2` is a name. Names are numbered by their first occurrence.
        let number =
            prepared.parameter_name(index).and_then(|name| name.strip_prefix('$')?.parse::<usize>().ok());
        let value = number.and_then(|number| values.get(number.checked_sub(1)?));
        prepared.raw_bind_parameter(
            index,
            value.ok_or(rusqlite::Error::InvalidParameterCount(values.len(), index))?,
        )?;
    }
    Ok(prepared)
}

/// Runs `work` on this thread. For large values the other tasks of the thread are moved away first.
fn off_worker<T>(values: &[Value], work: impl FnOnce() -> T) -> T {
    let size = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        _ => 0,
    };
    let large = values.iter().map(size).sum::<usize>() > LARGE_VALUE_BYTES;
    let many_threads = || {
        let runtime = tokio::runtime::Handle::try_current();
        runtime.is_ok_and(|runtime| runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread)
    };
    if large && many_threads() { tokio::task::block_in_place(work) } else { work() }
}

pub(super) fn script(conn: &mut PooledConnection<Connection>, text: &'static str) -> Result<(), Failure> {
    open(conn).execute_batch(text).map_err(|error| classify("migration", error))
}

pub(super) fn prepare(conn: &mut PooledConnection<Connection>, statement: &Statement) -> Result<(), Failure> {
    let prepared = open(conn).prepare_cached(statement.sqlite).map(|_| ());
    prepared.map_err(|error| classify(statement.name, error))
}

/// The disk is full.
const DISK_FULL: i32 = 13;
/// A write failed, usually because of a quota or a limit on file size.
const IOERR_WRITE: i32 = 10 | 3 << 8;
/// The shared memory file of the write-ahead log cannot grow.
const IOERR_SHMSIZE: i32 = 10 | 19 << 8;

const UNIQUE: i32 = 19 | 8 << 8;
const PRIMARY_KEY: i32 = 19 | 6 << 8;
const FOREIGN_KEY: i32 = 19 | 3 << 8;

fn classify(statement: &'static str, error: rusqlite::Error) -> Failure {
    let (code, kind) = match error.sqlite_error() {
        Some(details) => (details.extended_code, Some(details.code)),
        None => (0, None),
    };
    let unavailable = |what, error| Error::Unavailable { what, source: Some(Box::new(error)) };
    let classified = match (code, kind) {
        (UNIQUE | PRIMARY_KEY, _) => taken_column(&error.to_string()),
        (FOREIGN_KEY, _) => Error::Reference(Box::new(error)),
        (DISK_FULL | IOERR_WRITE | IOERR_SHMSIZE, _) => Error::DiskFull(Box::new(error)),
        (_, Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) => {
            unavailable("another process holds the database file", error)
        }
        (_, Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen)) => {
            unavailable("the database file cannot be read or written", error)
        }
        _ => Error::Refused { statement, source: Box::new(error) },
    };
    classified.into()
}

/// Reads `… constraint failed: table.first, table.last`.
fn taken_column(message: &str) -> Error {
    let last = message.rsplit([' ', ',']).next().unwrap_or_default();
    let (table, column) = last.split_once('.').unwrap_or(("?", last));
    Error::Conflict { table: table.to_owned(), column: column.to_owned() }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;

    /// Planning a statement takes several times as long as running it.
    #[test]
    fn a_prepared_statement_is_planned_once_whatever_its_values() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = Config::new(crate::Location::Sqlite(folder.path().join("coder.db")));
        let path = folder.path().join("coder.db");
        let database = SqliteDatabase::new(&path, &config, OpenMode::CreateIfMissing);
        for access in [Access::Transaction, Access::Read] {
            let conn = database.connect(access).expect("a connection");
            if access == Access::Transaction {
                conn.execute_batch(
                    "create table sets (id bigint primary key);
                    create table jobs (id text primary key, set_id bigint not null, ended bigint);
                    create index jobs_open on jobs (set_id) where ended is null;",
                )
                .expect("tables");
            }
            let text = "select jobs.id from jobs join sets on sets.id = jobs.set_id where jobs.id = $1";
            for value in ["a", "b", "c"] {
                let mut statement = conn.prepare_cached(text).expect("a statement");
                statement.raw_bind_parameter(1, value).expect("bound");
                assert!(statement.raw_query().next().expect("a result").is_none());
                assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{access:?}, {value}");
            }
        }
    }

    /// The settings that decide what is kept after a crash, what readers may do, and what stays on free pages.
    #[test]
    fn connections_have_the_settings_of_their_use() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("coder.db");
        for durable in [false, true] {
            let config = Config { durable, ..Config::new(crate::Location::Sqlite(path.clone())) };
            let database = SqliteDatabase::new(&path, &config, OpenMode::CreateIfMissing);
            for access in [Access::Transaction, Access::Autocommit, Access::Read] {
                let conn = database.connect(access).expect("a connection");
                let reads = access == Access::Read;
                let number = |name: &str| -> i64 {
                    conn.pragma_query_value(None, name, |row| row.get(0)).expect("a number")
                };
                let mode: String =
                    conn.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("a text");
                assert_eq!(mode, "wal");
                for (name, value) in [
                    ("synchronous", if durable { 2 } else { 1 }),
                    ("foreign_keys", 1),
                    ("query_only", i64::from(reads)),
                    ("cache_size", if reads { -1024 } else { -4096 }),
                    ("secure_delete", i64::from(!reads)),
                    ("busy_timeout", 5000),
                ] {
                    assert_eq!(number(name), value, "{name} of {access:?}");
                }
                if !reads {
                    assert_eq!(number("wal_autocheckpoint"), WAL_PAGES);
                }
            }
        }
    }

    #[test]
    fn a_file_is_made_by_a_writer_that_may_and_by_nobody_else() {
        let folder = tempfile::tempdir().expect("a folder");
        for (open_mode, access, makes) in [
            (OpenMode::Existing, Access::Read, false),
            (OpenMode::Existing, Access::Autocommit, false),
            (OpenMode::CreateIfMissing, Access::Read, false),
            (OpenMode::CreateIfMissing, Access::Autocommit, true),
        ] {
            let path = folder.path().join("coder.db");
            let config = Config::new(crate::Location::Sqlite(path.clone()));
            let database = SqliteDatabase::new(&path, &config, open_mode);
            assert_eq!(database.connect(access).is_ok(), makes, "{open_mode:?} {access:?}");
            assert_eq!(path.exists(), makes, "{open_mode:?} {access:?}");
        }
    }

    #[test]
    fn errors_say_what_the_caller_can_do() {
        let classified = |extended_code: i32, message: &str| {
            let error = rusqlite::ffi::Error::new(extended_code);
            let failure = classify("t.X", rusqlite::Error::SqliteFailure(error, Some(message.to_owned())));
            assert!(!failure.conflicted, "there is one writer");
            failure.error
        };
        for code in [2067, 1555] {
            let error = classified(code, "UNIQUE constraint failed: users.id, users.name_lower");
            assert!(error.is_conflict_on("users", "name_lower"), "{error:?}");
            assert!(!error.is_conflict_on("users", "id") && !error.is_conflict_on("keys", "name_lower"));
        }
        let error = classified(2067, "UNIQUE constraint failed: index 'names'");
        assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
        assert!(matches!(classified(787, ""), Error::Reference(_)));
        for code in [13, 778, 4874] {
            let error = classified(code, "");
            assert!(matches!(error, Error::DiskFull(_)) && error.is_retryable(), "{code}: {error:?}");
        }
        for (code, what) in [
            (5, "another process"),
            (6, "another process"),
            (266, "read or written"),
            (14, "read or written"),
        ] {
            let error = classified(code, "");
            assert!(error.is_retryable() && error.to_string().contains(what), "{code}: {error}");
        }
        for code in [1, 11, 1299] {
            let error = classified(code, "");
            assert!(matches!(error, Error::Refused { statement: "t.X", .. }), "{code}: {error:?}");
            assert!(!error.is_retryable() && !error.is_not_found());
        }
        let failure = classify("t.X", rusqlite::Error::InvalidQuery);
        assert!(matches!(failure.error, Error::Refused { .. }));
    }

    /// The thread's other task runs only when it is moved away.
    #[test]
    fn large_values_do_not_delay_the_other_tasks_of_a_thread() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let text = |length| Value::Text("x".repeat(length));
        for (values, moves) in [
            (vec![], false),
            (vec![text(LARGE_VALUE_BYTES)], false),
            (vec![text(LARGE_VALUE_BYTES + 1)], true),
            (vec![text(LARGE_VALUE_BYTES), Value::Int(i64::MAX), Value::Bool(true)], false),
            (vec![text(LARGE_VALUE_BYTES / 2), Value::Bytes(vec![0; LARGE_VALUE_BYTES / 2])], false),
            (vec![text(LARGE_VALUE_BYTES / 2), Value::Bytes(vec![0; LARGE_VALUE_BYTES / 2 + 1])], true),
        ] {
            let task = runtime.spawn(async move {
                let (ran, heard) = std::sync::mpsc::channel();
                tokio::spawn(async move { ran.send(()).is_ok() });
                let patience = Duration::from_millis(if moves { 60_000 } else { 20 });
                off_worker(&values, || heard.recv_timeout(patience).is_ok())
            });
            assert_eq!(runtime.block_on(task).expect("no panic"), moves);
        }
        // A runtime of one thread has no other thread to which they could move.
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(async { off_worker(&[text(LARGE_VALUE_BYTES + 1)], || 7) }), 7);
        assert_eq!(off_worker(&[text(LARGE_VALUE_BYTES + 1)], || 7), 7);
    }
}
