//! The narrow waist: everything above this module speaks [`Tx`], [`Statement`], [`Value`] and [`Row`] and knows no
//! driver.

mod bind;
pub(crate) mod forks;
mod lane;
mod merge;
pub(crate) mod migrate;
pub(crate) mod postgres;
mod row;
mod sqlite;
mod statement;
mod value;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sqlx::postgres::PgConnection;

use crate::Config;
use crate::error::Error;
use crate::state_keys::{Owner, StateKeys};
use lane::Lease;
use merge::Part;
pub(crate) use row::{Record, Row};
pub use statement::{Class, Statement};
pub(crate) use statement::{sql, statements};
pub use value::Document;
pub(crate) use value::{Column, Value};
pub(crate) use value::{
    batch, clean, column_name, json_column, list, optional_list, record, sealed_json_column, to_json, values,
};

/// Where the rows are.
#[derive(Clone, Debug)]
pub enum Location {
    /// A SQLite file; it is made when it is missing, its folder must exist.
    Sqlite(std::path::PathBuf),
    /// A Postgres URL.
    Postgres(coder_domain::secret::Secret),
}

/// How many statements were run since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statements {
    /// On somebody's behalf.
    pub work: u64,
    /// Signs of life of daemons.
    pub heartbeats: u64,
    /// Looking for jobs.
    pub claims: u64,
    /// How often the database was asked for anything: what was run together counts once, and BEGIN and COMMIT each do
    /// where they were sent.
    pub asked: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    work: AtomicU64,
    heartbeats: AtomicU64,
    claims: AtomicU64,
    asked: AtomicU64,
}

impl Counters {
    fn count(&self, class: Class) {
        let counter = match class {
            Class::Work => &self.work,
            Class::Heartbeat => &self.heartbeats,
            Class::Claim => &self.claims,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn count_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Statements {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statements {
            work: read(&self.work),
            heartbeats: read(&self.heartbeats),
            claims: read(&self.claims),
            asked: read(&self.asked),
        }
    }
}

pub(crate) enum Engine {
    Sqlite(Box<sqlite::Lanes>),
    Postgres(Arc<postgres::Server>),
}

/// What a [`Tx`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Statements that only read; each sees the newest committed rows.
    Read,
    /// Statements that are each a transaction of their own.
    Single,
    /// One transaction.
    Write,
}

/// Whether a file that is missing is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    Existing,
    OrMade,
}

impl Engine {
    pub(crate) fn new(config: &Config, opening: Opening) -> Result<Self, Error> {
        match &config.location {
            Location::Sqlite(path) => Ok(Self::Sqlite(Box::new(sqlite::Lanes::new(path, config, opening)))),
            Location::Postgres(url) => Ok(Self::Postgres(Arc::new(postgres::Server::new(url, config)?))),
        }
    }

    pub(crate) async fn open(&self, mode: Mode, counters: &Arc<Counters>) -> Result<Tx, Error> {
        let conn = match self {
            Self::Sqlite(lanes) => Conn::Sqlite(lanes.lease(mode).await?),
            Self::Postgres(server) => Conn::Postgres(server.lease().await?, Arc::clone(server)),
        };
        let begun = mode == Mode::Write && matches!(conn, Conn::Sqlite(_));
        if begun {
            counters.count_asked();
        }
        Ok(Tx {
            conn,
            mode,
            begun,
            conflicted: false,
            spoiled: false,
            counters: Arc::clone(counters),
            after: Vec::new(),
            next: Vec::new(),
            last: Vec::new(),
            state_keys: StateKeys::default(),
        })
    }

    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(lanes) => lanes.close(),
            Self::Postgres(server) => server.close().await,
        }
    }
}

enum Conn {
    Sqlite(Lease<rusqlite::Connection>),
    Postgres(Lease<PgConnection>, Arc<postgres::Server>),
}

/// A connection in use: for reading, for single statements, or inside one transaction.
///
/// Dropping it without [`Tx::commit`] undoes what a transaction did.
pub struct Tx {
    conn: Conn,
    mode: Mode,
    /// Whether the database knows of the transaction. Postgres hears of it with the first statement that changes
    /// something: until then each statement sees the newest committed rows in any case.
    begun: bool,
    conflicted: bool,
    /// A statement failed in a way after which it is unknown whether the transaction is still open: SQLite undoes one
    /// by itself when the disk is full. Such a connection is not used again.
    spoiled: bool,
    counters: Arc<Counters>,
    /// What to do once the transaction is permanent.
    after: Vec<After>,
    /// Statements that wait to be run together, on Postgres. SQLite has no round trips to save.
    next: Vec<Part>,
    /// Statements for the end of the transaction, in this order.
    last: Vec<Part>,
    state_keys: StateKeys,
}

/// Something that must happen only if a transaction is made permanent, such as telling a log of it.
type After = Box<dyn FnOnce() + Send>;

impl Tx {
    pub(crate) fn set_state_keys(&mut self, keys: StateKeys) {
        self.state_keys = keys;
    }

    /// What Terraform's states are encrypted with.
    pub(crate) fn state_keys(&self) -> StateKeys {
        self.state_keys.clone()
    }

    /// A value of a column that holds secrets, as it is to be stored.
    pub(crate) fn sealed(&self, table: &'static str, column: &'static str, id: &str, value: Value) -> Value {
        let owner = Owner::Cell { table, column, id };
        match value {
            Value::Text(text) => Value::Text(self.state_keys.seal_text(owner, clean(text))),
            Value::Bytes(bytes) => Value::Bytes(self.state_keys.seal(owner, bytes)),
            other => other,
        }
    }

    /// The same for one column of a record's values.
    pub(crate) fn seal_in(
        &self,
        table: &'static str,
        columns: &[&str],
        column: &'static str,
        id: &str,
        values: &mut [Value],
    ) {
        let at = columns.iter().position(|known| *known == column).expect("the record has the column");
        values[at] = self.sealed(table, column, id, std::mem::replace(&mut values[at], Value::NullText));
    }

    /// Runs `effect` once this transaction is committed, and never when it is undone; outside of a transaction at
    /// once. It must be quick, since the connection is held meanwhile.
    pub fn after_commit(&mut self, effect: impl FnOnce() + Send + 'static) {
        if self.mode == Mode::Write {
            self.after.push(Box::new(effect));
        } else {
            effect();
        }
    }

    fn committed(&mut self) {
        self.mode = Mode::Single;
        for effect in self.after.drain(..) {
            effect();
        }
    }

    /// All rows of a statement.
    pub(crate) async fn fetch(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        self.ready_for(statement).await?;
        self.note(statement);
        self.counters.count_asked();
        let table = statement.table;
        let repeatable = self.mode == Mode::Read || (self.mode == Mode::Write && !self.begun);
        let outcome = match &mut self.conn {
            Conn::Sqlite(lease) => sqlite::fetch(lease, statement, &values)
                .map(|rows| rows.into_iter().map(|row| Row::sqlite(row, table, &self.state_keys)).collect()),
            Conn::Postgres(lease, server) => {
                server.fetch(lease, repeatable, statement, values).await.map(|rows| {
                    rows.into_iter().map(|row| Row::postgres(row, table, &self.state_keys)).collect()
                })
            }
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Runs what waits to be run, and begins the transaction if the statement changes something.
    async fn ready_for(&mut self, statement: &Statement) -> Result<(), Error> {
        if self.mode == Mode::Write && !(self.begun && self.next.is_empty()) {
            if !self.next.is_empty() {
                self.begin().await?;
                self.run_next().await?;
            } else if !statement.only_reads() {
                self.begin().await?;
            }
        }
        Ok(())
    }

    /// Tells the database of the transaction, unless it knows.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.begun {
            return Ok(());
        }
        self.counters.count_asked();
        let begun = match &mut self.conn {
            Conn::Sqlite(lease) => sqlite::begin(lease),
            Conn::Postgres(lease, server) => server.begin(lease).await,
        };
        begun.map_err(|failure| self.fail(failure))?;
        self.begun = true;
        Ok(())
    }

    /// Runs a statement together with those that come before and after it: on Postgres it is run with the next statement
    /// whose outcome somebody waits for, or at the end, so its error may come that late. It must not need what the others
    /// did, nor change the same rows. With `must`, [`Error::Stale`] when it changes nothing.
    pub(crate) async fn together(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value>,
        must: bool,
    ) -> Result<(), Error> {
        if self.mode == Mode::Write && self.is_postgres() {
            self.next.push(Part { statement, values, must });
            return Ok(());
        }
        match self.execute(statement, values).await? {
            0 if must => Err(Error::Stale { table: statement.table }),
            _ => Ok(()),
        }
    }

    /// Runs what waits to be run together.
    async fn run_next(&mut self) -> Result<(), Error> {
        let groups = merge::groups(std::mem::take(&mut self.next));
        if groups.len() > 1 {
            self.begin().await?;
        }
        for group in groups {
            for part in &group {
                self.note(part.statement);
            }
            self.counters.count_asked();
            if let Conn::Postgres(lease, server) = &mut self.conn {
                let done = server.run(lease, group).await;
                done.map_err(|failure| self.fail(failure))?;
            }
        }
        Ok(())
    }

    /// The first row of a statement, if there is one.
    pub(crate) async fn fetch_opt(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<Option<Row>, Error> {
        Ok(self.fetch(statement, values).await?.into_iter().next())
    }

    /// The first row of a statement.
    pub(crate) async fn fetch_one(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<Row, Error> {
        self.fetch_opt(statement, values).await?.ok_or(Error::NotFound { table: statement.table })
    }

    /// Runs a statement and says how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: &Statement, values: Vec<Value>) -> Result<u64, Error> {
        self.ready_for(statement).await?;
        self.note(statement);
        self.counters.count_asked();
        let outcome = match &mut self.conn {
            Conn::Sqlite(lease) => sqlite::execute(lease, statement, &values),
            Conn::Postgres(lease, server) => server.execute(lease, statement, values).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Runs a statement that must change exactly one row.
    pub(crate) async fn change_one(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<(), Error> {
        match self.execute(statement, values).await? {
            0 => Err(Error::Stale { table: statement.table }),
            _ => Ok(()),
        }
    }

    /// Runs a script of the migrations.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<(), Error> {
        if self.mode == Mode::Write {
            self.begin().await?;
        }
        self.counters.count(Class::Work);
        self.counters.count_asked();
        let outcome = match &mut self.conn {
            Conn::Sqlite(lease) => sqlite::script(lease, text),
            Conn::Postgres(lease, _) => postgres::script(lease, text).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Asks the database to parse and plan a statement without running it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the engine does not accept it.
    pub async fn prepare(&mut self, statement: &Statement) -> Result<(), Error> {
        let outcome = match &mut self.conn {
            Conn::Sqlite(lease) => sqlite::prepare(lease, statement),
            Conn::Postgres(lease, _) => postgres::prepare(lease, statement).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Whether what is read here may still be undone.
    #[must_use]
    pub fn is_transaction(&self) -> bool {
        self.mode == Mode::Write
    }

    /// Whether rows live in Postgres.
    pub(crate) const fn is_postgres(&self) -> bool {
        matches!(self.conn, Conn::Postgres(..))
    }

    /// Runs a statement right before the commit. For rows that many transactions change: on Postgres each waits for
    /// the one before, so the row should be locked for as short as can be. The rules of [`Tx::together`] hold for it.
    pub(crate) fn defer(&mut self, statement: &'static Statement, values: Vec<Value>) {
        debug_assert!(self.mode == Mode::Write, "outside of a transaction nothing comes last");
        self.last.push(Part { statement, values, must: false });
    }

    /// Runs what was put off to the end. [`Tx::commit`] does it too; this is for whoever wants to know whether it is
    /// worth trying the transaction again. Nothing but the commit may follow: where the database has not heard of a
    /// transaction, one statement is all of it and permanent.
    ///
    /// # Errors
    /// As of any statement; the transaction can only be undone then.
    pub(crate) async fn run_deferred(&mut self) -> Result<(), Error> {
        let last = std::mem::take(&mut self.last);
        if self.is_postgres() {
            self.next.extend(last);
            return self.run_next().await;
        }
        for Part { statement, values, .. } in last {
            self.execute(statement, values).await?;
        }
        Ok(())
    }

    /// Makes what this transaction did permanent.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the database went away; then it is unknown whether the commit happened.
    pub async fn commit(mut self) -> Result<(), Error> {
        if self.mode != Mode::Write {
            return Ok(());
        }
        self.run_deferred().await?;
        self.finish().await
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if self.begun {
            self.counters.count_asked();
            let outcome = match &mut self.conn {
                Conn::Sqlite(lease) => sqlite::commit(lease),
                Conn::Postgres(lease, server) => server.commit(lease).await,
            };
            outcome.map_err(|failure| self.fail(failure))?;
            self.begun = false;
        }
        self.committed();
        Ok(())
    }

    /// Undoes what this transaction did, keeping the connection.
    pub async fn rollback(mut self) {
        if self.mode == Mode::Write {
            self.undo().await;
        }
    }

    async fn undo(&mut self) {
        self.next.clear();
        self.last.clear();
        self.after.clear();
        let undone = !self.spoiled
            && match &mut self.conn {
                _ if !self.begun => true,
                Conn::Sqlite(lease) => sqlite::rollback(lease),
                Conn::Postgres(lease, server) => server.rollback(lease).await,
            };
        if undone {
            (self.begun, self.mode) = (false, Mode::Single);
        } else {
            self.spoiled = true;
        }
    }

    /// Makes the statements that follow one transaction, unless they belong to one already; says whether it did. End
    /// it with [`Tx::exit`], whatever happens.
    pub(crate) async fn enter(&mut self) -> Result<bool, Error> {
        if self.mode != Mode::Single {
            return Ok(false);
        }
        if !self.is_postgres() {
            self.begin().await?;
        }
        self.mode = Mode::Write;
        Ok(true)
    }

    /// Ends what [`Tx::enter`] began: well after a success, otherwise without a trace.
    pub(crate) async fn exit<T>(&mut self, entered: bool, outcome: Result<T, Error>) -> Result<T, Error> {
        if !entered {
            return outcome;
        }
        let outcome = match outcome {
            Ok(value) => self.run_deferred().await.map(|()| value),
            Err(error) => Err(error),
        };
        if outcome.is_ok() {
            self.finish().await?;
        } else {
            self.undo().await;
        }
        outcome
    }

    /// Whether another transaction was in the way since this was asked last; the answer is for whoever tries again
    /// by itself.
    pub(crate) const fn take_conflict(&mut self) -> bool {
        std::mem::replace(&mut self.conflicted, false)
    }

    /// Whether a statement failed because another transaction was in the way, so that running everything again is
    /// right.
    pub(crate) const fn is_conflicted(&self) -> bool {
        self.conflicted
    }

    fn note(&self, statement: &Statement) {
        self.counters.count(statement.class);
        tracing::trace!(target: "coder_store::statement", name = statement.name);
    }

    fn fail(&mut self, failure: Failure) -> Error {
        self.conflicted |= failure.conflicted;
        self.spoiled |= !self.is_postgres()
            && matches!(failure.error, Error::Full(_) | Error::Unavailable { .. } | Error::Refused { .. });
        failure.error
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.mode == Mode::Write {
            match &mut self.conn {
                Conn::Sqlite(lease) if self.spoiled => drop(lease.take()),
                Conn::Sqlite(lease) => {
                    if !sqlite::rollback(lease) {
                        drop(lease.take());
                    }
                }
                // Nothing was changed yet.
                Conn::Postgres(..) if !self.begun => {}
                // Closing the connection ends its transaction at once; a rollback would need to be awaited.
                Conn::Postgres(lease, _) => drop(lease.take()),
            }
        }
    }
}

/// A failed statement, classified by the adapter.
pub(crate) struct Failure {
    pub(crate) error: Error,
    pub(crate) conflicted: bool,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { error, conflicted: false }
    }
}
