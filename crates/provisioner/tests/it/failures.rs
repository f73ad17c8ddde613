//! Jobs that cannot work: each is failed with words that help, and the daemon goes on.

use bytes::Bytes;
use coder_provisioner::TerraformSource;
use coder_wire::messages::provisionerd as pb;
use pb::acquired_job::Type;

use crate::server::Server;
use crate::setup::{PLAIN, Running, import, run_one, start, tar, terraform};

async fn error_of(job: pb::AcquiredJob) -> pb::FailedJob {
    let (server, _running) = run_one(job).await;
    server.failed().await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_archives_are_named() {
    if terraform().is_none() {
        return;
    }
    let mut raw = tar::Header::new_gnu();
    raw.as_old_mut().name[..9].copy_from_slice(b"../out.tf");
    raw.set_entry_type(tar::EntryType::Regular);
    raw.set_size(0);
    raw.set_cksum();
    for (archive, wanted) in [
        (
            Bytes::from_static(b"this is no archive, however long one looks at it"),
            "not a readable tar archive",
        ),
        (Bytes::new(), "no Terraform file"),
        (tar(&[("sub/main.tf", PLAIN)]), "no Terraform file"),
        (Bytes::copy_from_slice(raw.as_bytes()), "../out.tf"),
    ] {
        let failed = error_of(import(archive, &[])).await;
        assert!(failed.error.starts_with("template import init error: "), "{}", failed.error);
        assert!(failed.error.contains(wanted), "{}", failed.error);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terraforms_diagnostics_reach_the_error() {
    if terraform().is_none() {
        return;
    }
    let failed = error_of(import(tar(&[("main.tf", "resource \"a\" {\n")]), &[])).await;
    assert!(failed.error.contains("main.tf line 1"), "{}", failed.error);

    let template = r#"
variable "n" { default = 1 }
resource "terraform_data" "a" {
  lifecycle {
    precondition {
      condition     = var.n == 2
      error_message = "numbers are broken"
    }
  }
}
"#;
    let failed = error_of(start(tar(&[("main.tf", template)]))).await;
    assert!(failed.error.starts_with("terraform plan: exit status 1: "), "{}", failed.error);
    assert!(failed.error.contains("numbers are broken"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_apply_hands_over_what_exists() {
    if terraform().is_none() {
        return;
    }
    let template = r#"
resource "terraform_data" "made" { input = "x" }
resource "terraform_data" "broken" {
  depends_on = [terraform_data.made]
  provisioner "local-exec" { command = "echo before-the-end; exit 3" }
}
"#;
    let (server, _running) = run_one(start(tar(&[("main.tf", template)]))).await;
    let (record, failed) = server.failed().await;
    assert!(failed.error.starts_with("terraform apply: exit status 1"), "{}", failed.error);
    assert!(record.has_line("before-the-end"));
    let Some(pb::failed_job::Type::WorkspaceBuild(build)) = failed.r#type else { panic!("no arm") };
    assert!(String::from_utf8(build.state.to_vec()).unwrap().contains("\"made\""));
    assert!(build.timings.iter().any(|timing| timing.resource == "coder_stage_apply"));
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_jobs_end_as_failures_not_as_crashes() {
    let server = Server::new();
    let running = Running::start(&server);
    let archive = tar(&[("main.tf", PLAIN)]);
    let mut no_arm = import(archive.clone(), &[]);
    no_arm.r#type = None;
    let mut no_metadata = import(archive.clone(), &[]);
    if let Some(Type::TemplateImport(import)) = &mut no_metadata.r#type {
        import.metadata = None;
    }
    let mut echo = import(archive, &[]);
    echo.provisioner = "echo".to_owned();
    for job in [no_arm, no_metadata, echo] {
        server.give(job);
    }
    let record = server.wait_for("three failures", |record| record.failed.len() == 3).await;
    for (failed, wanted) in record.failed.iter().zip(["no type", "no metadata", "\"echo\""]) {
        assert!(failed.error.contains(wanted), "{}", failed.error);
    }
    assert!(record.failed[2].r#type.is_none());
    assert_eq!(running.status.wait_for(|status| !status.is_busy()).await.unwrap().jobs_started, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_terraform_fails_the_job_with_advice() {
    let server = Server::new();
    let _running = Running::with(&server, |config, dir| {
        config.terraform = TerraformSource::File(dir.join("nothing-here"));
    });
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("--terraform-path"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_without_end_is_given_up() {
    let Some(real) = terraform() else { return };
    let server = Server::new();
    let script = "case \"$1\" in show) exec cat /dev/zero;; *) exec \"$REAL\" \"$@\";; esac";
    let _running = Running::with_stand_in(&server, &real, script);
    server.give(import(tar(&[("main.tf", PLAIN)]), &[]));
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("its output is longer than"), "{}", failed.error);
}
