//! Postgres stops and starts again: calls fail quickly with a clear error, and work again without a restart of the
//! program.

use std::time::{Duration, Instant};

use coder_store::testing::PostgresServer;
use coder_store::{Config, Store, settings};

use crate::fixture::at;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_work_again_after_a_postgres_restart() {
    // Its own Postgres server, because the test stops it.
    let Some(server) = PostgresServer::start().await else { return };
    let database = server.database().await;
    let store = Store::open(&Config::new(database.location.clone()), at(0)).await.unwrap();
    store.write(async |tx| settings::update(tx, "a", "1").await).await.unwrap();
    // Several idle connections, which will all be broken.
    let held = [store.reader().await.unwrap(), store.reader().await.unwrap(), store.reader().await.unwrap()];
    drop(held);
    let mut open = store.begin().await.unwrap();
    settings::update(&mut open, "a", "2").await.unwrap();

    server.crash();
    let started = Instant::now();
    for _ in 0..5 {
        let error = store.write(async |tx| settings::update(tx, "a", "3").await).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
        let error = match store.reader().await {
            Ok(mut tx) => settings::find(&mut tx, "a").await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.is_retryable(), "{error:?}");
    }
    let error = open.commit().await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());

    server.resume().await;
    let mut tx = store.reader().await.unwrap();
    assert_eq!(
        settings::find(&mut tx, "a").await.unwrap().as_deref(),
        Some("1"),
        "what was acknowledged, no more"
    );
    store.write(async |tx| settings::update(tx, "a", "4").await).await.unwrap();
    assert_eq!(settings::find(&mut tx, "a").await.unwrap().as_deref(), Some("4"));
}
