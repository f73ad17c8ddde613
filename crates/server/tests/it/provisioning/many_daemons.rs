//! Thousands of daemons that look for a job at once leave database connections for requests.

use super::*;

/// Locks the queue until a table with this name exists.
const HELD_UP: &str = "begin; lock table queue_lines in access exclusive mode;
    do $$ begin while not exists (select from pg_class where relname = 'go_on') loop perform pg_sleep(0.01); end loop; end $$; commit";

/// Waits until the lock is held.
const UNTIL_HELD_UP: &str = "do $$ begin while not exists (select from pg_locks where granted
        and relation = 'queue_lines'::regclass and mode = 'AccessExclusiveLock') loop
    perform pg_sleep(0.01); end loop; end $$";

#[tokio::test]
async fn daemons_that_look_for_jobs_leave_connections_for_requests() {
    let Some(server) = TestServer::postgres().await else { return };
    let owner = server.owner().await;
    let connections = server.app.store.connections();
    let half = u64::try_from(connections / 2).unwrap();
    let mut daemons = Vec::new();
    for number in 0..2 * connections {
        daemons.push(Daemon::tagged(&server, &format!("d{number}"), &[("pool", &number.to_string())]).await);
    }
    let before = server.app.store.statement_counts().claims;
    let claims = || server.app.store.statement_counts().claims - before;
    let acquiring = async {
        server.execute(UNTIL_HELD_UP).await;
        let waiting = daemons.iter().map(|daemon| {
            let calls = daemon.calls.clone();
            tokio::spawn(async move { calls.acquire(std::future::pending()).await })
        });
        let waiting: Vec<_> = waiting.collect();
        eventually("the claims wait for the lock", || claims() >= half).await;
        for _ in 0..20 {
            server.get(&owner, "/api/v2/users/me").await.expect(200);
        }
        assert_eq!(claims(), half, "the other daemons wait for the claims to end");
        server.execute("create table go_on ()").await;
        waiting
    };
    let (_, waiting) = tokio::join!(server.execute(HELD_UP), acquiring);
    // After that, all of them query the queue and wait for jobs.
    eventually("all have looked", || claims() >= 2 * half).await;
    let posted = import(&server, &owner, json!({ "pool": "3" })).await.1;
    until(&server, posted, |job| job.started_at.is_some()).await;
    for one in waiting {
        one.abort();
    }
}
