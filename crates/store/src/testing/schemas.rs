//! Schemas of tests on a long-lived Postgres server. A schema is dropped at the end of its test, also after a panic.
//! The schemas of a killed run are dropped by a later run.
//!
//! The name of a schema contains the number of its run. Each run holds an advisory lock with this number. Postgres
//! releases the lock when the process ends, even if it was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::sync::Mutex;
use uuid::Uuid;

/// The first half of the advisory lock's key. The second half is the number of the run.
const LOCK_CLASS: i32 = 0x636f_6465;
const PREFIX: &str = "coder_test_";

/// All tests of this process on one server.
struct Run {
    url: String,
    id: i32,
    schemas: AtomicU32,
    /// Holds the lock until the process ends.
    _lock: PgConnection,
}

/// A schema, dropped with this value.
pub(super) struct Schema {
    url: String,
    name: String,
}

impl Schema {
    /// Creates a schema of this run. The first schema of a run also drops the schemas of killed runs.
    pub(super) async fn make(url: &str) -> Self {
        static RUNS: Mutex<Vec<Arc<Run>>> = Mutex::const_new(Vec::new());
        let mut runs = RUNS.lock().await;
        let run = match runs.iter().find(|run| run.url == url) {
            Some(run) => Arc::clone(run),
            None => {
                let run = Arc::new(Run::start(url).await);
                runs.push(Arc::clone(&run));
                run
            }
        };
        drop(runs);
        let number = run.schemas.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{:08x}_{number}", run.id);
        create(url, &name).await;
        Self { url: url.to_owned(), name }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

pub(super) async fn create(url: &str, name: &str) {
    let mut conn = PgConnection::connect(url).await.expect("a connection to the test server");
    conn.execute(AssertSqlSafe(format!("create schema {name}"))).await.expect("a new schema");
    conn.close().await.expect("a clean end");
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (url, name) = (self.url.clone(), self.name.clone());
        // Its own thread, because the runtime of the test may be shutting down or blocked by this call.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let mut conn = PgConnection::connect(&url).await?;
                drop_schema(&mut conn, &name).await?;
                conn.close().await
            })
        });
        // The next run drops a schema that stays.
        if let Ok(Err(error)) = dropped.join() {
            tracing::warn!(schema = self.name, %error, "a schema stays until the next run");
        }
    }
}

async fn drop_schema(conn: &mut PgConnection, name: &str) -> sqlx::Result<()> {
    conn.execute("set lock_timeout = '10s'; set client_min_messages = warning").await?;
    conn.execute(AssertSqlSafe(format!("drop schema if exists {name} cascade"))).await.map(|_| ())
}

impl Run {
    async fn start(url: &str) -> Self {
        let bytes = Uuid::new_v4().into_bytes();
        let id = i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut lock = PgConnection::connect(url).await.expect("a connection to the test server");
        assert!(try_lock(&mut lock, id).await, "another run has this number");
        sweep(&mut lock).await;
        Self { url: url.to_owned(), id, schemas: AtomicU32::new(0), _lock: lock }
    }
}

/// Drops the schemas of runs that have ended.
async fn sweep(conn: &mut PgConnection) {
    let names = sqlx::query("select nspname from pg_namespace where nspname like $1 order by 1")
        .bind(format!("{}%", PREFIX.replace('_', "\\_")))
        .fetch_all(&mut *conn)
        .await
        .expect("a list of schemas");
    for name in names.iter().map(|row| row.get::<String, _>(0)) {
        let run =
            name.strip_prefix(PREFIX).and_then(|rest| u32::from_str_radix(rest.split('_').next()?, 16).ok());
        let Some(run) = run.map(u32::cast_signed) else { continue };
        if !try_lock(conn, run).await {
            continue;
        }
        // Another run may be dropping the same schemas.
        if let Err(error) = drop_schema(conn, &name).await {
            tracing::warn!(schema = name, %error, "the schema of a killed run stays until the next run");
        }
        let unlock = sqlx::query("select pg_advisory_unlock($1, $2)").bind(LOCK_CLASS).bind(run);
        unlock.execute(&mut *conn).await.expect("the lock is given back");
    }
}

/// Whether the run with this number has ended or is this one.
async fn try_lock(conn: &mut PgConnection, run: i32) -> bool {
    let locked =
        sqlx::query("select pg_try_advisory_lock($1, $2)").bind(LOCK_CLASS).bind(run).fetch_one(conn).await;
    locked.expect("an answer").get(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::PostgresServer;

    async fn exists(conn: &mut PgConnection, name: &str) -> bool {
        let found = sqlx::query("select exists (select 1 from pg_namespace where nspname = $1)").bind(name);
        found.fetch_one(conn).await.unwrap().get(0)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn schemas_go_with_their_tests_and_those_of_killed_runs_with_the_next_run() {
        let Some(server) = PostgresServer::start().await else { return };
        let url = server.url();
        let mut conn = PgConnection::connect(&url).await.unwrap();
        let (alive, killed) = (format!("{PREFIX}00000001_0"), format!("{PREFIX}f0000002_0"));
        for name in [&alive, &killed, &"someone_elses".to_owned()] {
            create(&url, name).await;
        }
        let mut beside = PgConnection::connect(&url).await.unwrap();
        assert!(try_lock(&mut beside, 1).await);

        let kept = Schema::make(&url).await;
        assert!(!exists(&mut conn, &killed).await, "its run was killed");
        assert!(exists(&mut conn, &alive).await, "its run goes on");
        assert!(exists(&mut conn, "someone_elses").await);

        let (told, name) = tokio::sync::oneshot::channel();
        let url = url.clone();
        let failed = tokio::spawn(async move {
            let schema = Schema::make(&url).await;
            let mut conn = PgConnection::connect(&url).await.unwrap();
            conn.execute(AssertSqlSafe(format!("create table {}.t (id int)", schema.name()))).await.unwrap();
            told.send(schema.name().to_owned()).unwrap();
            panic!("a test that fails");
        });
        let name = name.await.unwrap();
        assert!(failed.await.unwrap_err().is_panic());
        assert!(!exists(&mut conn, &name).await, "dropped though the test failed");
        assert!(exists(&mut conn, kept.name()).await, "another test of the run goes on");

        // A concurrent run has another number.
        drop(beside);
        while !try_lock(&mut conn, 1).await {
            tokio::task::yield_now().await;
        }
        let unlock = sqlx::query("select pg_advisory_unlock($1, 1)").bind(LOCK_CLASS);
        unlock.execute(&mut conn).await.unwrap();
        let _other = Run::start(&server.url()).await;
        assert!(exists(&mut conn, kept.name()).await && !exists(&mut conn, &alive).await);
    }
}
