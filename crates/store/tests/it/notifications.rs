//! Notifications between servers on one Postgres.

use std::time::Duration;

use coder_store::testing::PostgresServer;
use coder_store::{Config, Error, Store, notifications};

use crate::fixture::at;

const WAIT_LIMIT: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_reach_all_listeners_until_the_connection_is_lost() {
    // Its own Postgres server, because the test stops it.
    let Some(server) = PostgresServer::start().await else { return };
    let database = server.database().await;
    let store = Store::open(&Config::new(database.location.clone()), at(0)).await.unwrap();
    let mut one = store.channel("a").await.unwrap().unwrap();
    let mut two = store.channel("a").await.unwrap().unwrap();
    let mut other = store.channel("b").await.unwrap().unwrap();
    one.notifier.notify("first").await.unwrap();
    two.notifier.notify("second").await.unwrap();
    for channel in [&mut one, &mut two] {
        for expected in ["first", "second"] {
            let heard = tokio::time::timeout(WAIT_LIMIT, channel.listener.next()).await.unwrap();
            assert_eq!(heard.unwrap(), expected);
        }
    }
    other.notifier.notify("third").await.unwrap();
    let heard = tokio::time::timeout(WAIT_LIMIT, other.listener.next()).await.unwrap();
    assert_eq!(heard.unwrap(), "third", "channels are apart");
    let long = "x".repeat(notifications::MAX_PAYLOAD_BYTES);
    one.notifier.notify(&long).await.unwrap();
    assert_eq!(tokio::time::timeout(WAIT_LIMIT, two.listener.next()).await.unwrap().unwrap(), long);
    let refused = one.notifier.notify(&"x".repeat(8001)).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused:?}");
    one.notifier.notify("still there").await.unwrap();
    let heard = tokio::time::timeout(WAIT_LIMIT, two.listener.next()).await.unwrap().unwrap();
    assert_eq!(heard, "still there");

    server.crash();
    let lost = tokio::time::timeout(WAIT_LIMIT, two.listener.next()).await.unwrap().unwrap_err();
    assert!(lost.is_retryable(), "{lost:?}");
    assert!(one.notifier.notify("x").await.unwrap_err().is_retryable());
    assert!(store.channel("a").await.err().unwrap().is_retryable());
    server.resume().await;
    assert!(store.channel("a").await.unwrap().is_some());
}

#[tokio::test]
async fn sqlite_has_no_notification_channel() {
    let database = coder_store::testing::sqlite();
    let store = Store::open(&Config::new(database.location.clone()), at(0)).await.unwrap();
    assert!(store.channel("a").await.unwrap().is_none());
}
