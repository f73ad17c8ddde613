//! Migrations run once, under a lock and only forward.

use coder_store::{Config, Error, Store, organizations};
use tokio::task::JoinSet;

use crate::fixture::{Fixture, at, on_both_engines};

on_both_engines!(
    the_second_start_changes_nothing,
    a_newer_database_is_refused,
    a_changed_migration_is_refused,
    both_engines_have_the_same_tables,
    a_command_that_inspects_needs_the_newest_schema,
);

async fn the_second_start_changes_nothing(fixture: Fixture) {
    let first = organizations::get_default(&mut fixture.store.reader().await.unwrap()).await.unwrap();
    let again = Store::open(&Config::new(fixture.database().location.clone()), at(99)).await.unwrap();
    assert_eq!(again.statement_counts().work, 2, "one look at the catalogue, one at the list of migrations");
    assert_eq!(organizations::get_default(&mut again.reader().await.unwrap()).await.unwrap(), first);
}

async fn a_newer_database_is_refused(fixture: Fixture) {
    fixture.database()
        .execute("insert into schema_migrations (version, name, checksum, applied_us) values (9999, 'future', '', 0)")
        .await;
    let refused = Store::open(&Config::new(fixture.database().location.clone()), at(99)).await.err().unwrap();
    assert!(matches!(refused, Error::SchemaTooNew { found: 9999, .. }), "{refused:?}");
    assert!(refused.to_string().contains("start a release at least as new"), "{refused}");
    assert!(!refused.is_retryable());
}

async fn a_changed_migration_is_refused(fixture: Fixture) {
    fixture.database().execute("update schema_migrations set checksum = 'x' where version = 2").await;
    let refused = Store::open(&Config::new(fixture.database().location.clone()), at(99)).await.err().unwrap();
    assert!(matches!(refused, Error::MigrationChanged { version: 2 }), "{refused:?}");
}

async fn both_engines_have_the_same_tables(fixture: Fixture) {
    // The same test on the other engine compares with the same file.
    let text = include_str!("tables.txt");
    for table in text.lines() {
        fixture.database().execute(&format!("select count(*) from {table}")).await;
    }
    let mut created: Vec<_> = [
        "0001_accounts",
        "0002_jobs",
        "0003_templates",
        "0004_workspaces",
        "0005_records",
        "0006_scheduling",
        "0007_replicas",
        "0011_daemon_presence",
        "0012_external_auth",
        "0013_encryption_keys",
        "0016_file_parts",
        "0017_server_secrets",
        "0018_agents",
        "0019_schedules",
        "0020_relay_urls",
    ]
    .iter()
    .flat_map(|name| {
        let path = format!("{}/src/migrations/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let tables = text.lines().filter_map(|line| line.strip_prefix("create table "));
        tables.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    })
    .collect();
    created.sort();
    assert_eq!(created, text.lines().map(str::to_owned).collect::<Vec<_>>(), "update tables.txt");
}

async fn start_together(database: coder_store::testing::TestDatabase) {
    let mut starters = JoinSet::new();
    for second in 0..8 {
        let config = Config::new(database.location.clone());
        starters.spawn(async move {
            let store = Store::open(&config, at(second)).await.unwrap();
            organizations::get_default(&mut store.reader().await.unwrap()).await.unwrap().id
        });
    }
    let mut found = starters.join_all().await;
    found.dedup();
    assert_eq!(found.len(), 1, "all see the same default organization");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_migrate_once_sqlite() {
    start_together(coder_store::testing::sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_starts_migrate_once_postgres() {
    if let Some(database) = coder_store::testing::postgres().await {
        start_together(database).await;
    }
}

#[tokio::test]
async fn a_missing_folder_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let location = coder_store::Location::Sqlite(dir.path().join("missing/coder.db"));
    let refused = Store::open(&Config::new(location), at(0)).await.err().unwrap();
    assert!(refused.is_retryable(), "{refused:?}");
    assert!(refused.to_string().contains("cannot be read or written"), "{refused}");
}

#[tokio::test]
async fn a_bad_url_is_refused_without_showing_it() {
    let url = coder_domain::secret::Secret::new("postgres://user:hunter2@[bad/x");
    let refused = Store::open(&Config::new(coder_store::Location::Postgres(url)), at(0)).await.err().unwrap();
    assert!(matches!(refused, Error::Location(_)), "{refused:?}");
    assert!(!format!("{refused:?} {refused}").contains("hunter2"));
}

/// It holds hashes, keys and Terraform states.
#[tokio::test]
async fn the_file_belongs_to_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let database = coder_store::testing::sqlite();
    let store = Store::open(&Config::new(database.location.clone()), at(0)).await.unwrap();
    let coder_store::Location::Sqlite(path) = &database.location else { panic!("a file") };
    for name in ["coder.db", "coder.db-wal", "coder.db-shm"] {
        let mode = std::fs::metadata(path.with_file_name(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
    drop(store);
}

async fn a_command_that_inspects_needs_the_newest_schema(fixture: Fixture) {
    let config = Config::new(fixture.database().location.clone());
    let default = organizations::get_default(&mut fixture.store.reader().await.unwrap()).await.unwrap();
    let store = Store::open_existing(&config).await.unwrap();
    assert_eq!(organizations::get_default(&mut store.reader().await.unwrap()).await.unwrap(), default);
    store.close().await;
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/migrations")).unwrap();
    let numbered =
        files.filter(|file| file.as_ref().unwrap().file_name().to_string_lossy().starts_with("00"));
    let newest = i64::try_from(numbered.count()).unwrap();
    for (removed, expected) in [(newest, newest - 1), (newest - 1, newest - 2)] {
        let script = format!("delete from schema_migrations where version = {removed}");
        fixture.database().execute(&script).await;
        let refused = Store::open_existing(&config).await.err().unwrap();
        assert!(
            matches!(refused, Error::SchemaTooOld { found, known } if (found, known) == (expected, newest)),
            "{refused:?}"
        );
        assert!(refused.to_string().contains("start `coder server` of this release"), "{refused}");
    }
    fixture.database().execute("delete from schema_migrations").await;
    let refused = Store::open_existing(&config).await.err().unwrap();
    assert!(matches!(refused, Error::DatabaseMissing), "{refused:?}");
    fixture.database().execute("drop table schema_migrations").await;
    let refused = Store::open_existing(&config).await.err().unwrap();
    assert!(matches!(refused, Error::DatabaseMissing), "{refused:?}");
}

#[tokio::test]
async fn a_command_that_inspects_makes_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("coder.db");
    let config = Config::new(coder_store::Location::Sqlite(path.clone()));
    for content in [None, Some(""), Some("no database, though it is longer than a header of SQLite would be")]
    {
        if let Some(content) = content {
            std::fs::write(&path, content).unwrap();
        }
        let refused = Store::open_existing(&config).await.err().unwrap();
        assert!(matches!(refused, Error::DatabaseMissing), "{content:?}: {refused:?}");
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), content);
    }
}

/// A later release recognizes by it that a migration was changed.
#[tokio::test]
async fn the_checksum_of_a_migration_is_that_of_its_file() {
    let fixture = Fixture::sqlite().await;
    let coder_store::Location::Sqlite(path) = &fixture.database().location else { panic!("a file") };
    let conn = rusqlite::Connection::open(path).unwrap();
    let mut applied = conn.prepare("select name, checksum from schema_migrations order by version").unwrap();
    let applied = applied.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let applied: Vec<(String, String)> = applied.map(Result::unwrap).collect();
    assert_eq!(applied[0].0, "0001_accounts");
    for (name, checksum) in applied {
        let file = format!("{}/src/migrations/{name}.sql", env!("CARGO_MANIFEST_DIR"));
        assert_eq!(checksum, coder_store::files::hash(&std::fs::read(file).unwrap()), "{name}");
    }
}
