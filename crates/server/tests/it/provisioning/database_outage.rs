//! A database that is unavailable for longer than a daemon waits for a call.

use coder_store::testing;

use super::*;
use crate::harness::settings;

/// Seconds of silence after which a daemon ends its job, as long as it is connected (wire-protocol 5.5).
const DAEMON_TIMEOUT_SECONDS: u32 = 30;

#[tokio::test]
async fn a_daemon_is_sent_away_before_it_gives_its_job_up() {
    let Some(postgres) = testing::PostgresServer::start().await else { return };
    let server = TestServer::start(postgres.database().await, settings()).await;
    let owner = server.owner().await;
    let posted = import(&server, &owner, json!({})).await.1;
    let daemon = Daemon::untagged(&server, "d").await;
    daemon.take(posted).await;

    postgres.crash();
    let calls = daemon.calls.clone();
    let request = UpdateJobRequest {
        job_id: posted.to_string(),
        logs: vec![line("sent while the database is unavailable")],
        ..UpdateJobRequest::default()
    };
    let again = request.clone();
    let calling = tokio::spawn(async move { calls.update_job(&request).await });
    let mut seconds = 0;
    while !calling.is_finished() {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
        seconds += 1;
        assert!(seconds < DAEMON_TIMEOUT_SECONDS, "the call is still waiting");
        // Real time, because the database does not respond.
        settled(|| calling.is_finished()).await;
    }
    assert!(seconds > 10, "a short outage costs no connection: {seconds}");
    assert!(calling.await.unwrap().unwrap_err().is_retryable(), "the daemon makes the call again");
    assert!(daemon.calls.session().end().is_some());

    postgres.resume().await;
    let back = Daemon::untagged(&server, "d").await;
    assert_eq!(back.id, daemon.id);
    assert!(!back.calls.update_job(&again).await.unwrap().canceled);
    back.calls.complete_job(&import_result(posted, vec![])).await.unwrap();
    assert_eq!(status(&job(&server, posted).await), Status::Succeeded);
}
