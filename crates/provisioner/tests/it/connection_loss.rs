//! Connections that are lost and made again.

use std::time::Duration;

use coder_provisioner::{ConnectError, RunError};

use crate::fake_server::{Answer, Server};
use crate::fixture::{PLAIN, Running, start, tar};

fn slow_template(release: &std::path::Path) -> String {
    format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{ command = \"echo waiting; until test -e {}; do sleep 0.05; done; echo released\" }}\n}}\n",
        release.display()
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_outlives_its_connection() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::start(&server);
    let release = running.dir.path().join("release");
    server.give(start(tar(&[("main.tf", &slow_template(&release))])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    server.go_down().await;
    running.status.wait_for(|status| !status.connected).await.unwrap();
    assert!(running.status.get().is_ready(), "a busy daemon stays ready while it reconnects");
    std::fs::write(&release, "").unwrap();
    // Several attempts fail before the server is back.
    let before = server.connects();
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while server.connects() < before + 3 {
        assert!(tokio::time::Instant::now() < until, "the daemon tries again");
        tokio::task::yield_now().await;
    }
    server.come_back();
    let (record, _) = server.completed().await;
    assert!(record.has_line("(local-exec): released"), "lines written while offline arrive");
    assert_eq!(record.completed.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_cut_under_a_call_repeats_the_call() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut cuts = 0;
    server.script(move |update| {
        (cuts < 2 && !update.logs.is_empty()).then(|| {
            cuts += 1;
            Answer::Cut
        })
    });
    let _running = Running::start(&server);
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, _) = server.completed().await;
    assert!(server.connects() >= 3);
    assert_eq!(record.stages()[0], "Setting up", "the batch under the cut is sent again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_answered_with_an_error_ends_the_job() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut seen = false;
    server.script(move |update| {
        seen |= update.logs.iter().any(|line| line.output.contains("waiting"));
        seen.then_some(Answer::Error("job is not running"))
    });
    let running = Running::start(&server);
    let release = running.dir.path().join("release");
    server.give(start(tar(&[("main.tf", &slow_template(&release))])));
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("send periodic update: job is not running"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_without_contact_for_too_long_is_ended_and_reported_later() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let running = Running::with(&server, |config, _| config.lost_contact_after = Duration::from_millis(500));
    let release = running.dir.path().join("release");
    server.give(start(tar(&[("main.tf", &slow_template(&release))])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    server.go_down().await;
    let until = tokio::time::Instant::now() + Duration::from_secs(20);
    while running.at_work() > 0 {
        assert!(tokio::time::Instant::now() < until, "the job is ended");
        tokio::task::yield_now().await;
    }
    server.come_back();
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("send periodic update: no connection"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_daemon_ends_and_others_try_again() {
    let server = Server::new();
    server.refuse_connections(Some(ConnectError::Retry("no such organization".to_owned())));
    let mut running = Running::start(&server);
    let status = running.status.wait_for(|status| status.last_error.is_some()).await.unwrap();
    assert!(status.last_error.unwrap().contains("no such organization"));
    server.refuse_connections(None);
    running.status.wait_for(|status| status.connected).await.unwrap();
    assert!(server.connects() >= 2);
    server.refuse_connections(Some(ConnectError::Forbidden("scope".to_owned())));
    server.cut().await;
    let error = running.ended().await.unwrap_err();
    assert!(matches!(error, RunError::Refused(ConnectError::Forbidden(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_never_worked_ends_the_daemon_and_one_that_did_after_five_refusals() {
    let unknown = || Some(ConnectError::Unauthorized("unknown key".to_owned()));
    let server = Server::new();
    server.refuse_connections(unknown());
    let mut running = Running::start(&server);
    let error = running.ended().await.unwrap_err();
    assert!(error.to_string().contains("unknown key"), "{error}");
    assert_eq!(server.connects(), 1);

    server.refuse_connections(None);
    let mut running = Running::start(&server);
    running.status.wait_for(|status| status.connected).await.unwrap();
    server.refuse_connections(unknown());
    server.cut().await;
    let error = running.ended().await.unwrap_err();
    assert!(matches!(error, RunError::Refused(ConnectError::Unauthorized(_))));
    assert_eq!(server.connects(), 1 + 1 + 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_forbidden_in_mid_job_interrupts_terraform_before_it_ends() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    let mut running = Running::start(&server);
    let release = running.dir.path().join("release");
    server.give(start(tar(&[("main.tf", &slow_template(&release))])));
    server.wait_for("the provisioner", |record| record.has_line("(local-exec): waiting")).await;
    server.refuse_connections(Some(ConnectError::Forbidden("the key is gone".to_owned())));
    server.cut().await;
    let error = running.ended().await.unwrap_err();
    assert!(error.to_string().contains("the key is gone"), "{error}");
    assert_eq!(running.sessions(), 1, "the job ended in good order, and its state is kept");
    let entries = std::fs::read_dir(running.dir.path().join("cache/work")).unwrap().flatten();
    let state =
        entries.map(|entry| entry.path().join("template/terraform.tfstate")).find(|file| file.exists());
    assert!(std::fs::read_to_string(state.unwrap()).unwrap().contains("\"serial\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_succeeded_is_reported_so_although_an_update_failed() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.script(|update| {
        let last = update.logs.iter().any(|line| line.stage == "Cleaning Up");
        last.then_some(Answer::Error("the log is full"))
    });
    let _running = Running::start(&server);
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, _) = server.completed().await;
    assert!(!record.stages().contains(&"Cleaning Up"));
}
