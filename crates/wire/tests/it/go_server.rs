//! Our code as the daemon, the Go libraries as the server.

use std::time::Duration;

use coder_wire::daemon::{Client, Error};
use coder_wire::drpc::{self, MAX_MESSAGE_SIZE, Status};
use coder_wire::messages::provisioner::DataUploadType;
use coder_wire::messages::provisionerd::{CommitQuotaRequest, CompletedJob, FailedJob, UpdateJobRequest};
use coder_wire::mux;
use coder_wire::ws::handshake;
use tokio::io::AsyncReadExt as _;

use super::harness::{GoServer, JOB, content};

const FILE: DataUploadType = DataUploadType::UploadTypeModuleFiles;

/// Starts a server. Skips the test without Go.
macro_rules! go_server {
    () => {
        match GoServer::start() {
            Some(server) => server,
            None => return,
        }
    };
}

fn update(job_id: &str, readme: usize) -> UpdateJobRequest {
    UpdateJobRequest {
        job_id: job_id.to_owned(),
        readme: vec![1; readme].into(),
        ..UpdateJobRequest::default()
    }
}

/// Closes the session and checks the server's report about it.
async fn part(client: &Client, server: &mut GoServer) {
    let session = client.session();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    while session.open_streams() > 0 && tokio::time::Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    assert_eq!(session.open_streams(), 0);
    session.close().await;
    let report = server.report();
    for count in ["streams", "resets_in", "resets_out", "goaways_in"] {
        assert_eq!(report[count], 0, "{report}");
    }
    assert_eq!(report["end"], "EOF", "a WebSocket closed with 1000 is a clean end: {report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unary_calls_and_their_errors() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    let quota = CommitQuotaRequest { job_id: JOB.to_owned(), daily_cost: 9 };
    let answer = client.commit_quota(&quota).await.unwrap();
    assert_eq!((answer.ok, answer.credits_consumed, answer.budget), (true, 9, -1));
    client.fail_job(&FailedJob::default()).await.unwrap();
    match client.update_job(&update("refuse", 0)).await {
        Err(Error::Call(drpc::Error::Refused(Status { code: 7, text }))) => {
            assert_eq!(text, "required template variables: region");
        }
        other => panic!("{other:?}"),
    }
    match client.complete_job(&CompletedJob::default()).await {
        Err(error @ Error::Call(drpc::Error::Refused(Status { code: 12, .. }))) => {
            assert!(!error.is_retryable())
        }
        other => panic!("{other:?}"),
    }
    match client.update_job(&update("close", 0)).await {
        Err(error @ Error::Call(drpc::Error::NoAnswer)) => assert!(error.is_retryable()),
        other => panic!("{other:?}"),
    }
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_messages() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    // Tag and length of both fields take ten bytes.
    for size in [3 << 20, MAX_MESSAGE_SIZE - 10] {
        let answer = client.update_job(&update("job", size)).await.unwrap();
        assert_eq!(answer.variable_values[0].value, size.to_string());
    }
    match client.update_job(&update("job", MAX_MESSAGE_SIZE - 9)).await {
        Err(error @ Error::Call(drpc::Error::TooLarge { .. })) => assert!(!error.is_retryable()),
        other => panic!("{other:?}"),
    }
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_delivers() {
    let mut server = go_server!();
    let client = Client::new(server.join("/?acquire=now").await);
    let job = client.acquire(std::future::pending()).await.unwrap().unwrap();
    assert_eq!(job.job_id, JOB);
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_is_canceled() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    assert_eq!(client.acquire(std::future::ready(())).await.unwrap(), None);
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquire_without_an_answer_is_retryable() {
    let mut server = go_server!();
    let client = Client::new(server.join("/?acquire=error").await);
    let error = client.acquire(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, Error::Call(drpc::Error::NoAnswer)), "{error:?}");
    part(&client, &mut server).await;
}

pub(crate) async fn idle_for_80_s() {
    let mut server = go_server!();
    let client = Client::new(server.join("/?acquire=80s").await);
    assert!(client.acquire(std::future::pending()).await.unwrap().is_some());
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_in_both_directions() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    for size in [0, 5_000_000] {
        client.upload_file(FILE, content(size)).await.unwrap();
        assert_eq!(server.report()["uploaded"], size);
        assert_eq!(client.download_file(&size.to_string(), FILE).await.unwrap(), content(size));
    }
    let error = client.download_file("missing", FILE).await.unwrap_err();
    assert!(error.to_string().contains("no such file") && !error.is_retryable(), "{error:?}");
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_calls_leave_nothing() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    for _ in 0..10_000 {
        client.update_job(&update("job", 10)).await.unwrap();
    }
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canceled_call_leaves_the_session_alone() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    let acquire = client.acquire(std::future::pending());
    assert!(tokio::time::timeout(Duration::from_millis(50), acquire).await.is_err());
    client.update_job(&update("job", 1)).await.unwrap();
    client.session().ping().await.unwrap();
    part(&client, &mut server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_is_retryable() {
    let server = go_server!();
    let client = Client::new(server.join("/").await);
    let error = client.update_job(&update("lost", 0)).await.unwrap_err();
    assert!(error.is_retryable(), "{error:?}");
    client.session().closed().await;
    assert!(client.update_job(&update("job", 0)).await.unwrap_err().is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_retryable() {
    let mut server = go_server!();
    let client = Client::new(server.join("/").await);
    let acquire = tokio::spawn({
        let client = client.clone();
        async move { client.acquire(std::future::pending()).await }
    });
    client.session().ping().await.unwrap();
    server.kill();
    assert!(acquire.await.unwrap().unwrap_err().is_retryable());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goaway_refuses_new_streams() {
    let server = go_server!();
    let session = server.join("/goaway").await;
    let refused = async {
        // The server sends it after the join; streams may be opened until then.
        loop {
            match session.open().await {
                Ok(_) => drop(session.ping().await.unwrap()),
                Err(error) => break error,
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), refused).await.unwrap();
    assert!(matches!(error, mux::Error::GoAway), "{error:?}");
    assert!(session.end().is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_message_is_answered_with_1003() {
    let mut server = go_server!();
    let mut socket = server.dial("/text").await.unwrap();
    let error = socket.read_u8().await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    assert_eq!(server.report()["close"], 1003);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_upgrade_reports_status_and_body() {
    let server = go_server!();
    match server.dial("/refused").await {
        Err(handshake::Error::Refused { status, body }) => {
            assert_eq!(status, 403);
            assert!(String::from_utf8(body).unwrap().contains("message"));
        }
        other => panic!("{other:?}"),
    }
}
