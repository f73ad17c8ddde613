//! Daemons that are told to stop.

use std::time::{Duration, Instant};

use crate::server::Server;
use crate::setup::{PLAIN, Running, start, tar, terraform};

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
    if terraform().is_none() {
        return;
    }
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
    if terraform().is_none() {
        return;
    }
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
    if terraform().is_none() {
        return;
    }
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
async fn a_forced_end_is_quick_and_still_told() {
    if terraform().is_none() {
        return;
    }
    let (server, mut running) = with_job(ENDLESS).await;
    let started_at = Instant::now();
    running.shutdown.force();
    running.ended().await.unwrap();
    assert!(started_at.elapsed() < Duration::from_secs(5));
    assert!(server.record().failed[0].error.contains("shut down"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_slots_run_two_jobs_at_once() {
    if terraform().is_none() {
        return;
    }
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
