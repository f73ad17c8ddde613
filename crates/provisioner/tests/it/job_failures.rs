//! Jobs that cannot run: each fails with a helpful error, and the daemon continues.

use bytes::Bytes;
use coder_provisioner::TerraformSource;
use coder_wire::messages::provisionerd as pb;
use pb::acquired_job::Type;

use crate::fake_server::Server;
use crate::fixture::{PLAIN, Running, import, run_one, start, tar};

async fn error_of(job: pb::AcquiredJob) -> pb::FailedJob {
    let (server, _running) = run_one(job).await;
    server.failed().await.1
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_archives_are_named() {
    coder_requirements::require!(Terraform);
    let mut raw = tar::Header::new_gnu();
    raw.as_old_mut().name[..9].copy_from_slice(b"../out.tf");
    raw.set_entry_type(tar::EntryType::Regular);
    raw.set_size(0);
    raw.set_cksum();
    for (archive, wanted) in [
        (
            Bytes::from_static(b"this is not an archive, however long one looks at it"),
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
    coder_requirements::require!(Terraform);
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
    coder_requirements::require!(Terraform);
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
async fn output_without_end_is_given_up() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let script = "case \"$1\" in show) exec cat /dev/zero;; *) exec \"$REAL\" \"$@\";; esac";
    let _running = Running::with_stand_in(&server, &real, script);
    server.give(import(tar(&[("main.tf", PLAIN)]), &[]));
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("its output is longer than"), "{}", failed.error);
}

#[tokio::test(flavor = "multi_thread")]
async fn init_alone_is_tried_again_and_only_when_a_remote_failed() {
    let real = coder_requirements::require!(program Terraform);
    let cases = [
        ("init", "503 Service Unavailable", 2, true),
        ("init", "503 Service Unavailable", 9, false),
        ("init", "no such provider", 1, false),
        ("plan", "503 Service Unavailable", 1, false),
    ];
    for (command, error, failures, succeeds) in cases {
        let script = format!(
            "count=\"$(dirname \"$0\")/count\"; if test \"$1\" = {command}; then echo x >> \"$count\"; \
             if test $(wc -l < \"$count\") -le {failures}; then echo 'Error: {error}' >&2; exit 1; fi; fi; exec \"$REAL\" \"$@\""
        );
        let server = Server::new();
        let running = Running::with(&server, |config, dir| {
            config.terraform = TerraformSource::File(crate::fixture::stand_in(dir, &real, &script));
            config.init_retry = std::time::Duration::from_millis(10);
        });
        server.give(start(tar(&[("main.tf", PLAIN)])));
        let record = server.wait_for("the end of the job", crate::fake_server::Record::is_over).await;
        assert_eq!(record.failed.is_empty(), succeeds, "{command} {error}: {:?}", record.failed);
        let attempts = std::fs::read_to_string(running.dir.path().join("count")).unwrap().lines().count();
        let wanted = match (command, error) {
            ("init", "503 Service Unavailable") => 4.min(failures + 1),
            _ => 1,
        };
        assert_eq!(attempts, wanted, "{command} {error}");
        assert_eq!(record.has_line("trying again"), wanted > 1, "it is said that init is tried again");
    }
}

/// The daemon's environment contains secrets; jobs get neither these nor variables that were not named.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_sees_only_what_was_named_of_the_environment() {
    let real = coder_requirements::require!(program Terraform);
    let script = "case \"$1\" in apply) i=0; while test \"$(ulimit -c)\" != 0 && test $i -lt 100; do sleep 0.05; i=$((i+1)); done; echo \"core $(ulimit -c)\"; env | cut -d= -f1 | sed 's/^/has /';; esac; exec \"$REAL\" \"$@\"";
    let server = Server::new();
    let _running = Running::with(&server, |config, dir| {
        config.terraform = TerraformSource::File(crate::fixture::stand_in(dir, &real, script));
        config.job_environment = Some(vec!["CARGO_PKG_*".to_owned()]);
    });
    server.give(start(tar(&[("main.tf", PLAIN)])));
    let (record, _) = server.completed().await;
    let has = |name: &str| record.has_line(&format!("has {name}"));
    assert!(has("PATH") && has("TF_REATTACH_PROVIDERS"));
    assert!(!record.lines().any(|line| line.output == "has CARGO"), "it was not named");
    assert!(record.has_line("core 0"));
}
