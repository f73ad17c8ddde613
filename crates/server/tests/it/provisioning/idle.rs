//! A hundred waiting daemons cost one heartbeat statement a minute and one polling statement a second, schedules one a minute.

use super::*;

/// Sixty seconds pass on a manual clock. After each step the database gets real time to respond.
#[tokio::test]
async fn a_hundred_idle_daemons_cost_heartbeats_and_one_look_a_second_only() {
    let server = TestServer::sqlite().await;
    let mut daemons = Vec::new();
    for number in 0..100 {
        // Ten groups of ten daemons.
        let pool = (number % 10).to_string();
        daemons.push(Daemon::tagged(&server, &format!("d{number}"), &[("pool", &pool)]).await);
    }
    let waiting: Vec<_> = daemons
        .iter()
        .map(|daemon| {
            let calls = daemon.calls.clone();
            tokio::spawn(async move { calls.acquire(std::future::pending()).await })
        })
        .collect();
    all_wait(&server, (100, 10)).await;
    coder_server::tasks::start(&server.app);
    quiet(&server).await;
    let before = server.app.store.statement_counts();
    for _ in 0..12 {
        server.advance(5);
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(5)).await;
        tokio::time::resume();
        quiet(&server).await;
    }
    let after = server.app.store.statement_counts();
    assert_eq!(after.work - before.work, 0, "{before:?} {after:?}");
    let heartbeats = after.heartbeats - before.heartbeats;
    assert_eq!(heartbeats, 2, "one statement for all daemons, and one for the schedules of all workspaces");
    // One statement for all daemons, at most once a second. Here the clock moves in steps of five seconds.
    assert!((10..=14).contains(&(after.claims - before.claims)), "{before:?} {after:?}");
    assert_eq!(server.app.scheduler.size(), (100, 10));
    for one in waiting {
        one.abort();
    }
}

#[tokio::test]
async fn daemons_are_seen_while_they_are_connected_and_rows_of_long_gone_ones_removed() {
    use coder_server::tasks::driver::Task;
    let server = TestServer::sqlite().await;
    let here = Daemon::untagged(&server, "here").await;
    let gone = Daemon::untagged(&server, "gone").await;
    let id = gone.id;
    gone.calls.session().close().await;
    eventually("it has left", || server.app.scheduler.connected().len() == 1).await;
    server.advance(7 * 24 * 3600 + 1);
    coder_server::tasks::heartbeat::Heartbeat.run(&server.app).await.unwrap();
    coder_server::tasks::purge::Purge.run(&server.app).await.unwrap();
    let mut tx = server.app.store.reader().await.unwrap();
    assert!(daemons::find(&mut tx, id).await.unwrap().is_none(), "DAE-6");
    let seen = daemons::find(&mut tx, here.id).await.unwrap().unwrap();
    assert_eq!(seen.last_seen_at, Some(server.app.now()));
}
