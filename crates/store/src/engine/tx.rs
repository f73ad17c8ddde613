//! [`Tx`]: a connection in use with its transaction.

use std::sync::Arc;

use sqlx::postgres::PgConnection;

use super::access::Access;
use super::counters::Counters;
use super::failure::Failure;
use super::merge::{self, MergePart};
use super::pool::PooledConnection;
use super::postgres::{self, PostgresDatabase};
use super::row::Row;
use super::sqlite;
use super::statement::{Purpose, Statement};
use super::value::{Value, clean};
use crate::encryption::keys::{Owner, StateKeys};
use crate::error::Error;

pub(super) enum Connection {
    Sqlite(PooledConnection<rusqlite::Connection>),
    Postgres(PooledConnection<PgConnection>, Arc<PostgresDatabase>),
}

/// The state of a [`Tx`].
///
/// ```text
/// Reading                              never changes
///
/// Autocommit ──enter──▶ Pending ──begin──▶ Open ──commit──▶ Autocommit
///      ▲                   │ commit          │ a statement fails
///      │                   ▼                 ▼
///      └──────undo───── Autocommit        Failed, or Broken
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TxState {
    /// Statements only read.
    Reading,
    /// Each statement is a transaction of its own.
    Autocommit,
    /// A transaction that has not been started in the database. On Postgres it starts with the first changing
    /// statement: until then a transaction makes no difference, because each statement sees the newest committed rows.
    Pending,
    /// A transaction that has been started in the database.
    Open,
    /// A statement of the transaction failed. Postgres refuses further statements, and the transaction can only be
    /// rolled back. `conflicted` says that another transaction was the reason, so that the whole transaction should be
    /// run again.
    Failed { conflicted: bool },
    /// A statement failed, and it is unknown whether the transaction is still open: SQLite itself rolls back when the
    /// disk is full. The connection is closed.
    Broken,
}

impl TxState {
    const fn is_transaction(self) -> bool {
        !matches!(self, Self::Reading | Self::Autocommit)
    }
}

/// A connection in use: for reading, for single statements, or inside one transaction.
///
/// Dropping it without [`Tx::commit`] rolls the transaction back.
pub struct Tx {
    connection: Connection,
    state: TxState,
    counters: Arc<Counters>,
    /// Effects to run after the commit.
    after_commit: Vec<Effect>,
    /// Statements that are sent together with the next statement whose result is needed. Always empty on SQLite, which
    /// has no round trips.
    pipelined: Vec<MergePart>,
    /// Statements that run right before the commit, in this order.
    deferred: Vec<MergePart>,
    state_keys: StateKeys,
}

/// A function that runs only after a commit, for example one that wakes waiting daemons.
type Effect = Box<dyn FnOnce() + Send>;

impl Tx {
    pub(super) async fn new(
        connection: Connection,
        access: Access,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let mut tx = Self {
            connection,
            state: match access {
                Access::Read => TxState::Reading,
                Access::Autocommit => TxState::Autocommit,
                Access::Transaction => TxState::Pending,
            },
            counters,
            after_commit: Vec::new(),
            pipelined: Vec::new(),
            deferred: Vec::new(),
            state_keys: StateKeys::default(),
        };
        tx.begin_on_sqlite().await?;
        Ok(tx)
    }

    pub(crate) fn set_state_keys(&mut self, keys: StateKeys) {
        self.state_keys = keys;
    }

    /// The keys that encrypt secrets.
    pub(crate) fn state_keys(&self) -> StateKeys {
        self.state_keys.clone()
    }

    /// Encrypts a value of a column that holds secrets.
    pub(crate) fn sealed(&self, table: &'static str, column: &'static str, id: &str, value: Value) -> Value {
        let owner = Owner::Cell { table, column, id };
        match value {
            Value::Text(text) => Value::Text(self.state_keys.seal_text(owner, clean(text))),
            Value::Bytes(bytes) => Value::Bytes(self.state_keys.seal(owner, bytes)),
            other => other,
        }
    }

    /// Encrypts one column of a record's values.
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

    /// Runs `effect` after the commit of this transaction, or at once outside of a transaction. It does not run when
    /// the transaction is rolled back. It must be quick, because the connection is held meanwhile.
    pub fn after_commit(&mut self, effect: impl FnOnce() + Send + 'static) {
        if self.is_transaction() {
            self.after_commit.push(Box::new(effect));
        } else {
            effect();
        }
    }

    /// Whether rows that are read here may still be rolled back.
    #[must_use]
    pub fn is_transaction(&self) -> bool {
        self.state.is_transaction()
    }

    /// Whether the engine is Postgres.
    pub(crate) const fn is_postgres(&self) -> bool {
        matches!(self.connection, Connection::Postgres(..))
    }

    /// All rows of a statement.
    pub(crate) async fn fetch(
        &mut self,
        statement: &Statement,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        self.prepare_for(statement).await?;
        self.count(statement);
        self.counters.count_round_trip();
        let (table, keys) = (statement.table, &self.state_keys);
        let repeatable = matches!(self.state, TxState::Reading | TxState::Pending);
        let outcome = match &mut self.connection {
            Connection::Sqlite(conn) => sqlite::fetch(conn, statement, &values)
                .map(|rows| rows.into_iter().map(|row| Row::sqlite(row, table, keys)).collect()),
            Connection::Postgres(conn, database) => database
                .fetch(conn, repeatable, statement, values)
                .await
                .map(|rows| rows.into_iter().map(|row| Row::postgres(row, table, keys)).collect()),
        };
        outcome.map_err(|failure| self.fail(failure))
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

    /// Runs a statement and returns how many rows it changed.
    pub(crate) async fn execute(&mut self, statement: &Statement, values: Vec<Value>) -> Result<u64, Error> {
        self.prepare_for(statement).await?;
        self.count(statement);
        self.counters.count_round_trip();
        let outcome = match &mut self.connection {
            Connection::Sqlite(conn) => sqlite::execute(conn, statement, &values),
            Connection::Postgres(conn, database) => database.execute(conn, statement, values).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Runs a statement that must change exactly one row.
    ///
    /// # Errors
    /// [`Error::Stale`] when it changed none.
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

    /// Runs a statement whose result is not needed at once. Inside a transaction on Postgres it is sent together with
    /// the next statement whose result is needed, or at the commit; its error may come that late. It must not depend on
    /// the statements that are sent with it or change the same rows.
    ///
    /// # Errors
    /// With `must_change`, [`Error::Stale`] when it changes nothing.
    pub(crate) async fn execute_pipelined(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value>,
        must_change: bool,
    ) -> Result<(), Error> {
        if self.is_transaction() && self.is_postgres() {
            self.pipelined.push(MergePart { statement, values, must_change });
            return Ok(());
        }
        match self.execute(statement, values).await? {
            0 if must_change => Err(Error::Stale { table: statement.table }),
            _ => Ok(()),
        }
    }

    /// Runs a statement right before the commit. Use it for rows that many transactions change: on Postgres each
    /// transaction waits for the previous one, so the lock should be short. The rules of [`Tx::execute_pipelined`]
    /// apply.
    pub(crate) fn defer(&mut self, statement: &'static Statement, values: Vec<Value>) {
        debug_assert!(self.is_transaction(), "only a transaction has a commit");
        self.deferred.push(MergePart { statement, values, must_change: false });
    }

    /// Runs a script of the migrations.
    pub(crate) async fn script(&mut self, text: &'static str) -> Result<(), Error> {
        self.begin().await?;
        self.counters.count(Purpose::Work);
        self.counters.count_round_trip();
        let outcome = match &mut self.connection {
            Connection::Sqlite(conn) => sqlite::script(conn, text),
            Connection::Postgres(conn, _) => postgres::script(conn, text).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Lets the database parse and plan a statement without running it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the engine does not accept it.
    pub async fn prepare(&mut self, statement: &Statement) -> Result<(), Error> {
        let outcome = match &mut self.connection {
            Connection::Sqlite(conn) => sqlite::prepare(conn, statement),
            Connection::Postgres(conn, _) => postgres::prepare(conn, statement).await,
        };
        outcome.map_err(|failure| self.fail(failure))
    }

    /// Sends the pipelined statements, and begins the transaction if this one changes something.
    async fn prepare_for(&mut self, statement: &Statement) -> Result<(), Error> {
        if !self.pipelined.is_empty() {
            self.begin().await?;
            self.send_pipelined().await?;
        } else if !statement.only_reads() {
            self.begin().await?;
        }
        Ok(())
    }

    /// Starts a pending transaction in the database.
    async fn begin(&mut self) -> Result<(), Error> {
        if self.state != TxState::Pending {
            return Ok(());
        }
        self.counters.count_round_trip();
        let begun = match &mut self.connection {
            Connection::Sqlite(conn) => sqlite::begin(conn),
            Connection::Postgres(conn, database) => database.begin(conn).await,
        };
        begun.map_err(|failure| self.fail(failure))?;
        self.state = TxState::Open;
        Ok(())
    }

    /// SQLite has one writer, so a transaction takes the write lock before it reads.
    async fn begin_on_sqlite(&mut self) -> Result<(), Error> {
        if self.is_postgres() { Ok(()) } else { self.begin().await }
    }

    async fn send_pipelined(&mut self) -> Result<(), Error> {
        let groups = merge::groups(std::mem::take(&mut self.pipelined));
        if groups.len() > 1 {
            self.begin().await?;
        }
        for group in groups {
            for part in &group {
                self.count(part.statement);
            }
            self.counters.count_round_trip();
            if let Connection::Postgres(conn, database) = &mut self.connection {
                let done = database.run(conn, group).await;
                done.map_err(|failure| self.fail(failure))?;
            }
        }
        Ok(())
    }

    /// Runs the deferred statements. [`Tx::commit`] does so too; this function is for a caller that must know whether
    /// to run the transaction again. Only the commit may follow: when the transaction was not started in the database,
    /// a single statement is the whole transaction and is already permanent.
    pub(crate) async fn run_deferred(&mut self) -> Result<(), Error> {
        let deferred = std::mem::take(&mut self.deferred);
        if self.is_postgres() {
            self.pipelined.extend(deferred);
            return self.send_pipelined().await;
        }
        for MergePart { statement, values, .. } in deferred {
            self.execute(statement, values).await?;
        }
        Ok(())
    }

    /// Commits the transaction.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the connection was lost; then it is unknown whether the commit happened. The same
    /// error when an earlier statement failed; then nothing is committed.
    pub async fn commit(mut self) -> Result<(), Error> {
        if !self.is_transaction() {
            return Ok(());
        }
        self.run_deferred().await?;
        self.finish().await
    }

    async fn finish(&mut self) -> Result<(), Error> {
        match self.state {
            TxState::Open => {
                self.counters.count_round_trip();
                let outcome = match &mut self.connection {
                    Connection::Sqlite(conn) => sqlite::commit(conn),
                    Connection::Postgres(conn, database) => database.commit(conn).await,
                };
                outcome.map_err(|failure| self.fail(failure))?;
            }
            // Postgres answers the COMMIT of a failed transaction with a silent rollback.
            TxState::Failed { .. } | TxState::Broken => {
                return Err(Error::Unavailable {
                    what: "an earlier statement of the transaction failed",
                    source: None,
                });
            }
            TxState::Reading | TxState::Autocommit | TxState::Pending => {}
        }
        self.state = TxState::Autocommit;
        for effect in self.after_commit.drain(..) {
            effect();
        }
        Ok(())
    }

    /// Rolls the transaction back and returns the connection to the pool.
    pub async fn rollback(mut self) {
        if self.is_transaction() {
            self.undo().await;
        }
    }

    async fn undo(&mut self) {
        self.pipelined.clear();
        self.deferred.clear();
        self.after_commit.clear();
        let undone = match (&mut self.connection, self.state) {
            (_, TxState::Reading | TxState::Autocommit | TxState::Pending) => true,
            (_, TxState::Broken) => false,
            (Connection::Sqlite(conn), _) => sqlite::rollback(conn),
            (Connection::Postgres(conn, database), _) => database.rollback(conn).await,
        };
        self.state = if undone { TxState::Autocommit } else { TxState::Broken };
    }

    /// Begins a transaction unless there is one. Returns whether it did. Call [`Tx::exit`] in both cases.
    pub(crate) async fn enter(&mut self) -> Result<bool, Error> {
        if self.state != TxState::Autocommit {
            return Ok(false);
        }
        self.state = TxState::Pending;
        if let Err(error) = self.begin_on_sqlite().await {
            self.state = TxState::Autocommit;
            return Err(error);
        }
        Ok(true)
    }

    /// Ends a transaction that [`Tx::enter`] began: commits after success and rolls back otherwise.
    pub(crate) async fn exit<T>(&mut self, entered: bool, outcome: Result<T, Error>) -> Result<T, Failure> {
        if !entered {
            return Ok(outcome?);
        }
        let outcome = match outcome {
            Ok(value) => self.run_deferred().await.map(|()| value),
            Err(error) => Err(error),
        };
        match outcome {
            Ok(value) => {
                self.finish().await?;
                Ok(value)
            }
            Err(error) => {
                let conflicted = self.is_conflicted();
                self.undo().await;
                Err(Failure { error, conflicted })
            }
        }
    }

    /// Whether a statement of the transaction failed because of another transaction, so that the whole transaction
    /// should be run again.
    pub(crate) fn is_conflicted(&self) -> bool {
        self.state == TxState::Failed { conflicted: true }
    }

    fn count(&self, statement: &Statement) {
        self.counters.count(statement.purpose);
        tracing::trace!(target: "coder_store::statement", name = statement.name);
    }

    fn fail(&mut self, Failure { error, conflicted }: Failure) -> Error {
        if self.is_transaction() && self.state != TxState::Broken {
            let is_unknown =
                matches!(error, Error::DiskFull(_) | Error::Unavailable { .. } | Error::Refused { .. });
            self.state = if is_unknown && !self.is_postgres() {
                TxState::Broken
            } else {
                TxState::Failed { conflicted }
            };
        }
        error
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        match (&mut self.connection, self.state) {
            // Nothing was changed, or everything is committed.
            (_, TxState::Reading | TxState::Autocommit | TxState::Pending) => {}
            (Connection::Sqlite(conn), TxState::Broken) => drop(conn.take()),
            (Connection::Sqlite(conn), _) => {
                if !sqlite::rollback(conn) {
                    drop(conn.take());
                }
            }
            // Closing the connection ends the transaction at once. A rollback would have to be awaited, which `drop`
            // cannot do.
            (Connection::Postgres(conn, _), _) => drop(conn.take()),
        }
    }
}

#[cfg(test)]
#[cfg(feature = "testing")]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::{Config, Store, finish_attempt, settings, testing};

    async fn store() -> (Store, testing::TestDatabase) {
        let database = testing::sqlite();
        let config = Config::new(database.location.clone());
        (Store::open(&config, Timestamp::UNIX_EPOCH).await.unwrap(), database)
    }

    #[tokio::test]
    async fn a_transaction_that_always_conflicts_runs_five_times() {
        let (store, _database) = store().await;
        let (mut attempt, mut runs) = (1, 0);
        let outcome = loop {
            runs += 1;
            assert!(runs < 10, "it never ends");
            let mut tx = store.begin().await.unwrap();
            tx.state = TxState::Failed { conflicted: true };
            let failed = Err::<(), _>(Error::NotFound { table: "users" });
            if let Some(outcome) = finish_attempt(tx, failed, &mut attempt).await {
                break outcome;
            }
        };
        assert!(outcome.unwrap_err().is_not_found());
        assert_eq!(runs, 5);
    }

    #[tokio::test]
    async fn effects_run_after_the_commit_alone() {
        let (store, _database) = store().await;
        let (told, heard) = std::sync::mpsc::channel();
        let effect = |text: &'static str| {
            let told = told.clone();
            move || told.send(text).unwrap()
        };
        let mut tx = store.begin().await.unwrap();
        assert!(tx.is_transaction());
        tx.after_commit(effect("committed"));
        settings::update(&mut tx, "a", "1").await.unwrap();
        assert!(heard.try_recv().is_err(), "not yet");
        tx.commit().await.unwrap();
        assert_eq!(heard.try_recv(), Ok("committed"));
        let mut tx = store.begin().await.unwrap();
        tx.after_commit(effect("rolled back"));
        tx.rollback().await;
        for (tx, text) in [(store.single().await, "single"), (store.reader().await, "reader")] {
            let mut tx = tx.unwrap();
            assert!(!tx.is_transaction());
            tx.after_commit(effect(text));
            assert_eq!(heard.try_recv(), Ok(text), "at once");
        }
    }

    #[tokio::test]
    async fn statements_and_round_trips_are_counted() {
        let (store, _database) = store().await;
        let before = store.statement_counts();
        let mut tx = store.single().await.unwrap();
        settings::find(&mut tx, "a").await.unwrap();
        settings::update(&mut tx, "a", "1").await.unwrap();
        tx.commit().await.unwrap();
        let single = store.statement_counts();
        assert_eq!((single.work - before.work, single.round_trips - before.round_trips), (2, 2));
        let mut tx = store.begin().await.unwrap();
        settings::update(&mut tx, "a", "2").await.unwrap();
        tx.commit().await.unwrap();
        let transaction = store.statement_counts();
        let counted = (transaction.work - single.work, transaction.round_trips - single.round_trips);
        assert_eq!(counted, (1, 3), "with its begin and its commit");
        let mut tx = store.begin().await.unwrap();
        crate::changes::find_last(&mut tx).await.unwrap();
        crate::jobs::requirements::list(&mut tx).await.unwrap();
        let purposes = store.statement_counts();
        assert_eq!(purposes.work, transaction.work);
        assert_eq!(
            (purposes.heartbeats - transaction.heartbeats, purposes.claims - transaction.claims),
            (1, 1)
        );
    }
}
