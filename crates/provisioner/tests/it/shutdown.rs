//! Daemons that are stopped.

use std::time::{Duration, Instant};

use crate::fake_server::Server;
use crate::fixture::{PLAIN, Running, start, tar};

const WAITING: &str = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"echo waiting; sleep 1; echo finished\" }\n}\n";
const ENDLESS: &str = "resource \"terraform_data\" \"a\" {\n  provisioner \"local-exec\" { command = \"echo waiting; sleep 1000\" }\n}\n";

async fn with_job(template: &str) -> (Server, Running) {
    let server = Server::new();
    let running = Running::start(&server);
    server.give(start(tar(&[("main.tf", template)])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    (server, running)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_daemon_calls_off_its_wait_and_ends() {
    let server = Server::new();
    let mut running = Running::start(&server);
    server.wait_for("an acquire", |record| record.acquires == 1).await;
    running.shutdown.drain();
    running.ended().await.unwrap();
    let record = server.record();
    assert_eq!((record.acquires, record.acquires_canceled), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_without_a_server_ends_at_once() {
    let server = Server::new();
    server.go_down().await;
    let mut running = Running::start(&server);
    running.status.wait_for(|status| status.last_error.is_some()).await.unwrap();
    running.shutdown.drain();
    running.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draining_daemon_finishes_the_job_and_takes_no_other() {
    coder_requirements::require!(Terraform);
    let (server, mut running) = with_job(WAITING).await;
    running.shutdown.drain();
    server.give(start(tar(&[("main.tf", PLAIN)])));
    running.status.wait_for(|status| status.draining).await.unwrap();
    running.ended().await.unwrap();
    let record = server.record();
    assert!(record.has_line("(local-exec): finished"));
    assert_eq!((record.completed.len(), record.failed.len(), record.acquires), (1, 0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_arrives_with_the_cancel_is_run() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.give_on_cancel(start(tar(&[("main.tf", PLAIN)])));
    let mut running = Running::start(&server);
    server.wait_for("an acquire", |record| record.acquires == 1).await;
    running.shutdown.drain();
    running.ended().await.unwrap();
    assert_eq!(server.record().completed.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceling_daemon_interrupts_the_job_and_reports_it() {
    coder_requirements::require!(Terraform);
    let (server, mut running) = with_job(ENDLESS).await;
    running.shutdown.cancel();
    running.ended().await.unwrap();
    let record = server.record();
    assert!(
        record.failed[0].error.starts_with("terraform apply: exit status 1"),
        "{}",
        record.failed[0].error
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forced_end_is_quick_and_still_reported() {
    coder_requirements::require!(Terraform);
    let (server, mut running) = with_job(ENDLESS).await;
    let started_at = Instant::now();
    running.shutdown.force();
    running.ended().await.unwrap();
    assert!(started_at.elapsed() < Duration::from_secs(5));
    assert!(server.record().failed[0].error.contains("shut down"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_slots_run_two_jobs_at_once() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut running = Running::with(&server, |config, _| config.slots = 2);
    for _ in 0..2 {
        server.give(start(tar(&[("main.tf", WAITING)])));
    }
    running.status.wait_for(|status| status.jobs.len() == 2).await.unwrap();
    running.shutdown.drain();
    running.ended().await.unwrap();
    assert_eq!(server.record().completed.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_daemon_says_nothing_and_leaves_the_state() {
    coder_requirements::require!(Terraform);
    let made = format!(
        "resource \"terraform_data\" \"made\" {{ input = 1 }}\n{}",
        ENDLESS.replace("\"a\" {", "\"a\" {\n  depends_on = [terraform_data.made]")
    );
    let (server, mut running) = with_job(&made).await;
    let started_at = Instant::now();
    running.shutdown.kill();
    running.ended().await.unwrap();
    assert!(started_at.elapsed() < Duration::from_secs(5));
    assert!(!server.record().is_over());
    assert_eq!(running.sessions(), 1, "the state is kept for the next process");
}

/// One request over a socket.
async fn ask(address: std::net::SocketAddr, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.write_all(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_daemon_shows_itself_over_http_and_drains_when_asked() {
    coder_requirements::require!(Terraform);
    let (server, mut running) = with_job(WAITING).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let http = coder_provisioner::http::serve(
        listener,
        "v1".to_owned(),
        running.status.clone(),
        running.shutdown.clone(),
    );
    let http = tokio::spawn(http);
    // A silent client blocks nobody.
    let _silent = tokio::net::TcpStream::connect(address).await.unwrap();
    server.go_down().await;
    running.status.wait_for(|status| !status.connected).await.unwrap();
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 200"), "busy is ready");
    server.come_back();
    let status = ask(address, "GET /status").await;
    let json: serde_json::Value = serde_json::from_str(status.rsplit("\r\n").next().unwrap()).unwrap();
    assert_eq!((&json["busy"], &json["slots"], &json["version"]), (&true.into(), &1.into(), &"v1".into()));
    let metrics = ask(address, "GET /metrics").await;
    assert!(
        metrics.contains("\ncoderd_provisionerd_jobs_current{provisioner=\"terraform\"} 1\n"),
        "{metrics}"
    );
    assert!(ask(address, "POST /drain").await.starts_with("HTTP/1.1 202"));
    assert!(ask(address, "GET /readyz").await.starts_with("HTTP/1.1 503"));
    running.ended().await.unwrap();
    assert_eq!(server.record().completed.len(), 1);
    http.abort();
}
