//! Following logs over real sockets: peers that do not read, and jobs that end without a daemon.

use coder_api::client::JobLogTarget;
use coder_domain::secret::Secret;
use coder_testkit::daemon::{FakeDaemon, import_result, import_update};
use coder_testkit::server::TestServer;
use coder_testkit::wait::{WAIT_LIMIT, eventually};

use crate::flow::push;

#[tokio::test]
async fn a_follower_that_does_not_read_holds_nobody_up() {
    let server = TestServer::start().await.unwrap();
    let client = &server.owner;
    let daemon = FakeDaemon::join_with_session(client, "d").await.unwrap();
    let version = push(client).await;
    let job = daemon.acquire().await.unwrap();
    let token = client.create_session_key().await.unwrap();
    let cookie = Secret::new(format!("coder_session_token={}", token.expose()));
    let path = format!("/api/v2/templateversions/{}/logs", version.id);
    let silent = client.websocket(&path, &[("follow", String::new())], &[("cookie", cookie)]).await.unwrap();
    let reporting = async {
        for _ in 0..20 {
            daemon.calls.update_job(&import_update(&job.job_id, 500, 0)).await.unwrap();
        }
        daemon.calls.complete_job(&import_result(&job.job_id)).await.unwrap();
    };
    tokio::time::timeout(WAIT_LIMIT, reporting).await.unwrap();
    let lines = client.job_logs(JobLogTarget::Version(version.id), 0).await.unwrap();
    assert_eq!(lines.len(), 10_000);
    assert!(lines.iter().map(|line| line.id).eq(1..=10_000));
    let after = client.job_logs(JobLogTarget::Version(version.id), 9_990).await.unwrap();
    assert_eq!(after.len(), 10);
    drop(silent);
    let followed = client.follow_job_logs(JobLogTarget::Version(version.id), 5_000).collect();
    let followed = tokio::time::timeout(WAIT_LIMIT, followed).await.unwrap().unwrap();
    assert!(followed.iter().map(|line| line.id).eq(5_001..=10_000), "history, each row once, then the end");
}

#[tokio::test]
async fn a_job_canceled_while_it_waits_ends_its_log() {
    let server = TestServer::start().await.unwrap();
    let client = &server.owner;
    let version = push(client).await;
    let following = tokio::spawn(client.follow_job_logs(JobLogTarget::Version(version.id), 0).collect());
    eventually("somebody listens", || server.handle.app.events.topics() > 0).await;
    client.cancel_version(version.id).await.unwrap();
    let lines = tokio::time::timeout(WAIT_LIMIT, following).await.unwrap().unwrap().unwrap();
    assert!(lines.is_empty());
}
