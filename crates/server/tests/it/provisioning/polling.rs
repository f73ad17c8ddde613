//! When every wake-up is lost, polling once a second finds waiting jobs.

use super::*;
use crate::harness::settings;

fn deaf() -> coder_server::Config {
    let mut config = settings();
    config.provisioning.wake_ups = false;
    config
}

#[tokio::test]
async fn acq_6_a_job_is_found_without_any_notification() {
    let server = TestServer::sqlite_with(deaf()).await;
    let owner = server.owner().await;
    let daemon = Daemon::untagged(&server, "d").await;
    let acquiring = {
        let calls = daemon.calls.clone();
        tokio::spawn(async move { calls.acquire(std::future::pending()).await.unwrap().unwrap() })
    };
    all_wait(&server, (1, 1)).await;
    let posted = import(&server, &owner, json!({})).await.1;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(status(&job(&server, posted).await), Status::Pending, "nobody was woken");
    let started = std::time::Instant::now();
    coder_server::tasks::start(&server.app);
    assert_eq!(acquiring.await.unwrap().job_id, posted.to_string());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_poll_wakes_only_daemons_that_can_take_a_job_and_is_skipped_without_daemons() {
    let server = TestServer::sqlite_with(deaf()).await;
    let owner = server.owner().await;
    let idle = server.app.store.statement_counts();
    server.app.scheduler.wake_for_waiting_jobs().await.unwrap();
    assert_eq!(server.app.store.statement_counts(), idle, "nobody waits");
    let mut acquiring = Vec::new();
    for pool in 0..10 {
        let daemon = Daemon::tagged(&server, &format!("d{pool}"), &[("pool", &pool.to_string())]).await;
        acquiring.push(tokio::spawn(async move { daemon.acquire().await.job_id }));
    }
    all_wait(&server, (10, 10)).await;
    quiet(&server).await;
    server.app.scheduler.wake_for_waiting_jobs().await.unwrap();
    let fitting = import(&server, &owner, json!({"pool": "3"})).await.1;
    import(&server, &owner, json!({"pool": "none of them"})).await;
    let before = server.app.store.statement_counts().claims;
    server.app.scheduler.wake_for_waiting_jobs().await.unwrap();
    assert_eq!(acquiring.swap_remove(3).await.unwrap(), fitting.to_string());
    let claims = server.app.store.statement_counts().claims - before;
    assert!(claims < 10, "nine others were not woken: {claims}");
    assert_eq!(server.app.scheduler.size(), (9, 9));
    for one in acquiring {
        one.abort();
    }
}
