//! Jobs that users cancel.

use std::time::{Duration, Instant};

use coder_provisioner::TerraformSource;
use coder_wire::messages::provisionerd as pb;

use crate::fake_server::{Answer, Server};
use crate::fixture::{PLAIN, Running, runs_with, stand_in, start, tar};

/// A resource that never becomes ready; the marker identifies its process.
fn endless(marker: &str) -> String {
    format!(
        "resource \"terraform_data\" \"made\" {{ input = 1 }}\n\
         resource \"terraform_data\" \"endless\" {{\n  depends_on = [terraform_data.made]\n  \
         provisioner \"local-exec\" {{ command = \"echo {marker}-started; sleep 1000; echo {marker}\" }}\n}}\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_apply_is_interrupted_and_nothing_of_it_survives() {
    coder_requirements::require!(Terraform);
    for in_log_answer in [true, false] {
        let marker = format!("endless-{}", uuid::Uuid::new_v4().simple());
        let server = Server::new();
        let mut seen = false;
        let wanted = format!("{marker}-started");
        server.script(move |update| {
            seen |= update.logs.iter().any(|line| line.output.contains(&wanted));
            (seen && update.logs.is_empty() != in_log_answer).then(Answer::canceled)
        });
        let _running = Running::start(&server);
        server.give(start(tar(&[("main.tf", &endless(&marker))])));
        let (record, failed) = server.failed().await;
        assert!(failed.error.starts_with("terraform apply: exit status 1"), "{}", failed.error);
        assert!(record.has_line("Cleaning Up") || record.stages().contains(&"Cleaning Up"));
        let Some(pb::failed_job::Type::WorkspaceBuild(build)) = failed.r#type else { panic!("no arm") };
        assert!(String::from_utf8(build.state.to_vec()).unwrap().contains("\"made\""));
        assert!(!runs_with(&marker));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_ignores_the_interrupt_is_killed() {
    let real = coder_requirements::require!(program Terraform);
    let marker = format!("deaf-{}", uuid::Uuid::new_v4().simple());
    let script = format!(
        "case \"$1\" in plan) trap '' INT; echo deaf; while :; do sh -c 'sleep 1000; : {marker}'; done;; *) exec \"$REAL\" \"$@\";; esac"
    );
    let server = Server::new();
    let mut seen = false;
    server.script(move |update| {
        seen |= update.logs.iter().any(|line| line.output == "deaf");
        seen.then(Answer::canceled)
    });
    let _running = Running::with(&server, |config, dir| {
        config.terraform = TerraformSource::File(stand_in(dir, &real, &script));
        config.exit_timeout = Duration::from_millis(300);
    });
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (_, failed) = server.failed().await;
    assert!(failed.error.starts_with("terraform plan: signal 9"), "{}", failed.error);
    assert!(!runs_with(&marker));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_does_not_end_is_given_up_without_further_updates() {
    let real = coder_requirements::require!(program Terraform);
    let script = "case \"$1\" in plan) trap '' INT; echo deaf; while :; do sleep 1000; done;; *) exec \"$REAL\" \"$@\";; esac";
    let server = Server::new();
    let mut seen = false;
    server.script(move |update| {
        seen |= update.logs.iter().any(|line| line.output == "deaf");
        seen.then(Answer::canceled)
    });
    let running = Running::with(&server, |config, dir| {
        config.terraform = TerraformSource::File(stand_in(dir, &real, script));
        config.force_cancel_after = Duration::from_millis(300);
    });
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, failed) = server.failed().await;
    assert_eq!(failed.error, "Cancel timed out");
    running.status.wait_for(|status| !status.is_busy()).await.unwrap();
    assert_eq!(server.record().updates.len(), record.updates.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_canceled_before_terraform_starts_runs_nothing() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.script(|_| Some(Answer::canceled()));
    let _running = Running::start(&server);
    let started_at = Instant::now();
    server.give(start(tar(&[("main.tf", &endless("never"))])));
    let (_, failed) = server.failed().await;
    assert!(!failed.error.is_empty());
    assert!(started_at.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_hide_in_a_session_of_their_own_end_with_the_job() {
    coder_requirements::require!(Terraform);
    let marker = format!("hidden-{}", uuid::Uuid::new_v4().simple());
    let template = format!(
        "resource \"terraform_data\" \"a\" {{\n  provisioner \"local-exec\" {{ command = \"setsid sh -c 'sleep 1000; : {marker}' >/dev/null 2>&1 & echo left\" }}\n}}\n"
    );
    let server = Server::new();
    let _running = Running::start(&server);
    server.give(start(tar(&[("main.tf", &template)])));
    let (record, _) = server.completed().await;
    assert!(record.has_line("(local-exec): left"));
    // The kernel takes a moment to end a killed process.
    let deadline = Instant::now() + Duration::from_secs(20);
    while runs_with(&marker) {
        assert!(Instant::now() < deadline, "it is still there");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_canceled_in_any_phase_leaves_nothing_behind() {
    let real = coder_requirements::require!(program Terraform);
    let module = "module \"m\" {\n  source = \"./m\"\n}\n";
    for phase in ["get", "init", "graph", "plan", "apply"] {
        let marker = format!("phase-{}", uuid::Uuid::new_v4().simple());
        // The interrupted shell leaves a process without the job's marker, group and session. It prints more
        // than a graph's log buffers.
        let script = format!(
            "if [ \"$1\" = {phase} ] && [ -e stays ]; then\n\
             env -i setsid sh -c 'sleep 1000; : {marker}' >/dev/null 2>&1 &\n\
             for i in $(seq 300); do echo {marker} >&2; done\n\
             trap 'exit 1' INT\nwhile :; do sleep 0.05; done\nfi\nexec \"$REAL\" \"$@\""
        );
        let server = Server::new();
        let (mut seen, wanted) = (false, marker.clone());
        server.script(move |update| {
            let was_seen = seen;
            seen |= update.logs.iter().any(|line| line.output == wanted);
            // Only the job that reports it; the next one continues.
            (seen && !was_seen).then(Answer::canceled)
        });
        let running = Running::with(&server, |config, dir| {
            config.terraform = TerraformSource::File(stand_in(dir, &real, &script));
            config.exit_timeout = Duration::from_secs(5);
        });
        server.give(start(tar(&[("main.tf", module), ("m/main.tf", PLAIN), ("stays", "")])));
        let (_, failed) = server.failed().await;
        assert!(!failed.error.is_empty(), "{phase}");
        server.give(start(tar(&[("main.tf", module), ("m/main.tf", PLAIN)])));
        let record = server.wait_for("the next build", |record| !record.completed.is_empty()).await;
        assert_eq!(record.failed.len(), 1, "after {phase}: {:?}", record.failed);
        // The last directory is removed when the server has the result.
        let until = Instant::now() + Duration::from_secs(20);
        while running.sessions() > 0 {
            assert!(Instant::now() < until, "a directory is left after {phase}");
            tokio::task::yield_now().await;
        }
        let left = running.dir.path().join("cache/installing").read_dir().unwrap().count();
        assert_eq!(left, 0, "after {phase}");
        if running.status.get().isolation == coder_provisioner::IsolationLevel::Full {
            assert!(!runs_with(&marker), "after {phase}");
        }
    }
}
