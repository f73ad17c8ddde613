//! Transactions are atomic, waiting is bounded, and conflicts are retried.

use std::time::{Duration, Instant};

use coder_store::{Config, Error, Store, settings, users};

use crate::fixture::{Fixture, at, new_user, on_both_engines};

on_both_engines!(
    a_dropped_transaction_leaves_nothing,
    a_failed_body_leaves_nothing,
    a_transaction_with_a_failed_statement_is_not_committed,
    a_canceled_future_leaves_nothing_and_blocks_nobody,
    waiting_for_a_connection_is_bounded,
    readers_cannot_write,
    deadlocks_are_retried,
    a_closed_store_refuses,
);

async fn value(store: &Store, key: &str) -> Option<String> {
    settings::find(&mut store.reader().await.unwrap(), key).await.unwrap()
}

async fn a_dropped_transaction_leaves_nothing(fixture: Fixture) {
    let mut tx = fixture.store.begin().await.unwrap();
    settings::update(&mut tx, "a", "1").await.unwrap();
    drop(tx);
    assert_eq!(value(&fixture.store, "a").await, None);
    let mut tx = fixture.store.begin().await.unwrap();
    settings::update(&mut tx, "a", "2").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(value(&fixture.store, "a").await.as_deref(), Some("2"));
}

async fn a_failed_body_leaves_nothing(fixture: Fixture) {
    let mut runs = 0;
    let failed = fixture
        .store
        .write(async |tx| {
            runs += 1;
            settings::update(tx, "a", "1").await?;
            Err::<(), _>(Error::NotFound { table: "users" })
        })
        .await;
    assert!(failed.unwrap_err().is_not_found());
    assert_eq!(runs, 1, "nobody else was the reason");
    assert_eq!(value(&fixture.store, "a").await, None);
}

async fn a_transaction_with_a_failed_statement_is_not_committed(fixture: Fixture) {
    let user = new_user("twice");
    let mut tx = fixture.store.begin().await.unwrap();
    settings::update(&mut tx, "a", "1").await.unwrap();
    users::insert(&mut tx, &user).await.unwrap();
    assert!(users::insert(&mut tx, &user).await.is_err());
    assert!(tx.commit().await.is_err());
    assert_eq!(value(&fixture.store, "a").await, None);
    fixture.store.write(async |tx| settings::update(tx, "b", "1").await).await.unwrap();
}

async fn a_canceled_future_leaves_nothing_and_blocks_nobody(fixture: Fixture) {
    for round in 0..50 {
        let store = fixture.store.clone();
        let task = tokio::spawn(async move {
            store
                .write(async |tx| {
                    settings::update(tx, "a", "1").await?;
                    settings::update(tx, "b", "1").await?;
                    settings::update(tx, "c", "1").await?;
                    std::future::pending::<Result<(), Error>>().await
                })
                .await
        });
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
    }
    fixture.store.write(async |tx| settings::update(tx, "d", "1").await).await.unwrap();
    assert_eq!((value(&fixture.store, "a").await, value(&fixture.store, "c").await), (None, None));
    assert_eq!(value(&fixture.store, "d").await.as_deref(), Some("1"));
}

async fn waiting_for_a_connection_is_bounded(fixture: Fixture) {
    let config = Config {
        acquire_timeout: Duration::from_millis(50),
        connections: 2,
        ..Config::new(fixture.database().location.clone())
    };
    let store = Store::open(&config, at(0)).await.unwrap();
    let mut held = Vec::new();
    let started = Instant::now();
    let refused = loop {
        match store.begin().await {
            Ok(tx) => held.push(tx),
            Err(error) => break error,
        }
    };
    assert!(refused.is_retryable(), "{refused:?}");
    assert!(started.elapsed() < Duration::from_secs(5));
    assert_eq!(held.len(), if store.is_postgres() { 2 } else { 1 });
    drop(held);
    assert!(store.begin().await.is_ok());
}

async fn readers_cannot_write(fixture: Fixture) {
    if fixture.store.is_postgres() {
        return; // There readers share the connections.
    }
    let mut tx = fixture.store.reader().await.unwrap();
    assert!(matches!(settings::update(&mut tx, "a", "1").await, Err(Error::Refused { .. })));
}

async fn deadlocks_are_retried(fixture: Fixture) {
    fixture
        .store
        .write(async |tx| {
            settings::update(tx, "a", "0").await?;
            settings::update(tx, "b", "0").await
        })
        .await
        .unwrap();
    let meeting = std::sync::Arc::new(tokio::sync::Barrier::new(2));
    let start = |first: &'static str, second: &'static str| {
        let (store, meeting) = (fixture.store.clone(), std::sync::Arc::clone(&meeting));
        tokio::spawn(async move {
            let mut met = !store.is_postgres();
            coder_store::transaction!(store, Error, |tx| {
                settings::update(tx, first, "1").await?;
                if !met {
                    met = true;
                    meeting.wait().await;
                }
                settings::update(tx, second, "1").await
            })
        })
    };
    let (left, right) = (start("a", "b"), start("b", "a"));
    left.await.unwrap().unwrap();
    right.await.unwrap().unwrap();
}

async fn a_closed_store_refuses(fixture: Fixture) {
    fixture.store.close().await;
    let refused = fixture.store.reader().await.err().unwrap();
    assert!(refused.is_retryable());
    let again = Store::open(&Config::new(fixture.database().location.clone()), at(0)).await.unwrap();
    assert_eq!(value(&again, "a").await, None);
}

/// The engine itself may have rolled the transaction back, so that its connection is not used again.
#[tokio::test]
async fn a_refused_statement_leaves_no_open_transaction() {
    let fixture = Fixture::sqlite().await;
    let trigger = "create trigger refusal before insert on settings when new.key = 'refused'
        begin select raise(abort, 'never'); end";
    fixture.database().execute(trigger).await;
    for end in ["drop", "rollback", "commit"] {
        let mut tx = fixture.store.begin().await.unwrap();
        settings::update(&mut tx, "a", end).await.unwrap();
        let refused = settings::update(&mut tx, "refused", "1").await.unwrap_err();
        assert!(matches!(refused, Error::Refused { statement: "settings.SET", .. }), "{refused:?}");
        match end {
            "drop" => drop(tx),
            "rollback" => tx.rollback().await,
            _ => {
                let lost = tx.commit().await.unwrap_err();
                assert!(lost.to_string().contains("an earlier statement"), "{lost}");
            }
        }
        assert_eq!(value(&fixture.store, "a").await, None, "{end}");
        fixture.store.write(async |tx| settings::update(tx, "b", end).await).await.unwrap();
        assert_eq!(value(&fixture.store, "b").await.as_deref(), Some(end));
    }
    let single = settings::update(&mut fixture.store.single().await.unwrap(), "refused", "1").await;
    assert!(matches!(single, Err(Error::Refused { .. })), "{single:?}");
    fixture.store.write(async |tx| settings::update(tx, "c", "1").await).await.unwrap();
}

#[tokio::test]
async fn closing_moves_the_log_into_the_file() {
    let fixture = Fixture::sqlite().await;
    assert_eq!(value(&fixture.store, "a").await, None);
    let coder_store::Location::Sqlite(path) = &fixture.database().location else { panic!("a file") };
    let log = path.with_file_name("coder.db-wal");
    assert!(log.exists());
    fixture.store.close().await;
    assert!(!log.exists(), "no connection is open any more");
}

#[tokio::test]
async fn at_least_two_connections_are_used() {
    for (connections, used) in [(0, 2), (1, 2), (2, 2), (7, 7)] {
        let database = coder_store::testing::sqlite();
        let config = Config { connections, ..Config::new(database.location.clone()) };
        let store = Store::open(&config, at(0)).await.unwrap();
        assert_eq!((store.connections(), store.is_postgres()), (used, false));
    }
}
