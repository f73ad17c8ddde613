//! Migrates a database to the newest schema. Migrations are numbered, have checksums and go forward only. All pending
//! ones are applied in one transaction, by one server at a time.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::deployment::bootstrap;
use crate::engine::{Access, Counters, Database, Tx, Value, forks, sql, statements, values};
use crate::error::Error;

/// One step of the schema.
pub(crate) struct Migration {
    version: i64,
    name: &'static str,
    text: &'static str,
}

macro_rules! migrations {
    ($($version:literal $name:literal),* $(,)?) => {
        &[$(Migration {
            version: $version,
            name: $name,
            text: include_str!(concat!($name, ".sql")),
        }),*]
    };
}

/// In the order of application. A released file must never change.
pub(crate) const MIGRATIONS: &[Migration] = migrations![
    1 "0001_accounts",
    2 "0002_jobs",
    3 "0003_templates",
    4 "0004_workspaces",
    5 "0005_records",
    6 "0006_scheduling",
    7 "0007_replicas",
    8 "0008_daemon_tag_sets",
    9 "0009_log_chunks",
    10 "0010_job_programs",
    11 "0011_daemon_presence",
    12 "0012_external_auth",
    13 "0013_encryption_keys",
    14 "0014_daemon_health",
    15 "0015_api_key_parents",
    16 "0016_file_parts",
    17 "0017_server_secrets",
    18 "0018_agents",
    19 "0019_schedules",
    20 "0020_relay_urls",
];

/// Defines what Postgres lacks of the portable SQL dialect. Runs before the first migration.
const POSTGRES_PRELUDE: &str = include_str!("postgres_prelude.sql");

const MIGRATIONS_TABLE: &str = "create table schema_migrations (
    version bigint primary key,
    name text not null,
    checksum text not null,
    applied_us bigint not null
);";

statements! { "schema_migrations";
    APPLIED = sql("select version, checksum from schema_migrations order by version");
    RECORD = sql("insert into schema_migrations (version, name, checksum, applied_us) values ($1, $2, $3, $4)");
}

/// Applies the pending migrations.
pub(crate) async fn run(
    database: &Database,
    counters: &std::sync::Arc<Counters>,
    now: Timestamp,
) -> Result<(), Error> {
    run_all(database, counters, now, MIGRATIONS).await
}

/// Checks that the database has the schema of this release. Changes nothing.
pub(crate) async fn require_newest(
    database: &Database,
    counters: &std::sync::Arc<Counters>,
) -> Result<(), Error> {
    let read = async {
        let mut tx = database.connect(Access::Read, counters).await?;
        applied(&mut tx, MIGRATIONS).await
    };
    let found = match read.await {
        // The file is not a SQLite database.
        Err(Error::Refused { .. }) => 0,
        found => found?,
    };
    match (found.checked_sub(1), MIGRATIONS.last()) {
        (None, _) => Err(Error::DatabaseMissing),
        (Some(last), Some(newest)) if found < MIGRATIONS.len() => {
            Err(Error::SchemaTooOld { found: MIGRATIONS[last].version, known: newest.version })
        }
        _ => Ok(()),
    }
}

async fn run_all(
    database: &Database,
    counters: &std::sync::Arc<Counters>,
    now: Timestamp,
    migrations: &[Migration],
) -> Result<(), Error> {
    let mut tx = database.connect(Access::Autocommit, counters).await?;
    let applied = applied(&mut tx, migrations).await?;
    drop(tx);
    if applied == migrations.len() {
        return Ok(());
    }
    let mut tx = database.connect(Access::Transaction, counters).await?;
    // SQLite's write transaction already excludes other servers.
    if tx.is_postgres() {
        tx.script(forks::POSTGRES_MIGRATION_LOCK).await?;
    }
    let exists = bookkeeping_exists(&mut tx).await?;
    let applied = self::applied(&mut tx, migrations).await?;
    if !exists {
        if tx.is_postgres() {
            tx.script(POSTGRES_PRELUDE).await?;
        }
        tx.script(MIGRATIONS_TABLE).await?;
    }
    for migration in &migrations[applied..] {
        tx.script(migration.text).await?;
        let row = values![migration.version, migration.name.to_owned(), checksum(migration.text), now];
        tx.execute(&RECORD, row).await?;
    }
    if !exists {
        bootstrap::fill(&mut tx, now).await?;
    }
    tx.commit().await?;
    let done = if exists { "the database schema was migrated" } else { "the database schema was created" };
    tracing::info!(from = applied, to = migrations.len(), "{done}");
    Ok(())
}

async fn bookkeeping_exists(tx: &mut Tx) -> Result<bool, Error> {
    let row = tx.fetch_one(&forks::TABLE_EXISTS, values!["schema_migrations".to_owned()]).await?;
    row.get("found")
}

/// The number of `migrations` that are applied, after a check that no others are.
async fn applied(tx: &mut Tx, migrations: &[Migration]) -> Result<usize, Error> {
    if !bookkeeping_exists(tx).await? {
        return Ok(0);
    }
    let rows = tx.fetch(&APPLIED, Vec::<Value>::new()).await?;
    let known = migrations.last().map_or(0, |migration| migration.version);
    for (index, row) in rows.iter().enumerate() {
        let (version, stored): (i64, String) = (row.get("version")?, row.get("checksum")?);
        match migrations.get(index) {
            Some(migration) if migration.version == version => {
                if checksum(migration.text) != stored {
                    return Err(Error::MigrationChanged { version });
                }
            }
            _ => {
                let newest = rows.last().map_or(Ok(version), |row| row.get("version"))?;
                return Err(Error::SchemaTooNew { found: newest, known });
            }
        }
    }
    Ok(rows.len())
}

fn checksum(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}
