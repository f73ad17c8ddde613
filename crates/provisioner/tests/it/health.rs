//! Daemons that cannot run jobs: they acquire none, report the problem, and check again.

use std::path::Path;
use std::time::Duration;

use coder_provisioner::{Health, InstallConfig, TerraformSource};
use coder_wire::extension::messages::HealthReport;
use coder_wire::extension::{Extension, Extensions};

use crate::fake_server::Server;
use crate::fixture::{PLAIN, Running, stand_in, start, tar};
use crate::release_server::Remote;

const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// A daemon whose only configured program `terraform` is missing.
fn without_terraform(server: &Server) -> Running {
    Running::with(server, |config, dir| {
        config.terraform = TerraformSource::File(dir.join("terraform"));
        (config.terraform_retry, config.terraform_check) = (CHECK_INTERVAL, CHECK_INTERVAL);
    })
}

async fn unhealthy(running: &Running) -> coder_provisioner::HealthProblem {
    let waiting = running.status.wait_for(|status| status.health.problem().is_some());
    let status = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    assert!(!status.is_ready() || status.is_busy(), "{status:?}");
    status.health.problem().unwrap().clone()
}

fn plain() -> coder_wire::messages::provisionerd::AcquiredJob {
    start(tar(&[("main.tf", PLAIN)]))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_without_terraform_takes_no_job_until_there_is_one() {
    let real = coder_requirements::require!(program Terraform);
    for granted in [Extensions::ALL, Extensions::ALL.without(Extension::Health), Extensions::NONE] {
        let server = Server::new();
        server.extended().grant(granted);
        server.give(plain());
        let running = without_terraform(&server);
        let problem = unhealthy(&running).await;
        assert_eq!(problem.summary, "no Terraform");
        let detail = &problem.detail;
        assert!(detail.contains("no such file") && detail.contains("--terraform-path"), "{detail}");
        running.status.wait_for(|status| status.connected).await.unwrap();
        if granted.has(Extension::Health) {
            let wanted = HealthReport { problem: problem.summary.clone(), detail: problem.detail.clone() };
            let record = server.wait_for("the report", |record| record.health.contains(&wanted)).await;
            assert_eq!(record.health.last(), Some(&wanted));
        }
        let record = server.record();
        assert_eq!((record.acquires, record.is_over()), (0, false), "{granted:?}");
        stand_in(running.dir.path(), &real, "exec \"$REAL\" \"$@\"");
        let (record, _) = server.completed().await;
        assert!(record.acquires >= 1);
        let well = running.status.wait_for(|status| status.health == Health::Ready).await.unwrap();
        assert!(well.is_ready());
        if granted.has(Extension::Health) {
            server
                .wait_for("the all-clear", |record| record.health.last() == Some(&HealthReport::default()))
                .await;
        } else {
            assert!(server.record().health.is_empty(), "{granted:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_loses_its_terraform_stops_asking() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = without_terraform(&server);
    let program = stand_in(running.dir.path(), &real, "exec \"$REAL\" \"$@\"");
    server.wait_for("an acquire", |record| record.acquires == 1).await;
    std::fs::remove_file(&program).unwrap();
    // An acquire that waits ends.
    server.wait_for("the end of the acquire", |record| record.acquires_canceled == 1).await;
    assert_eq!(unhealthy(&running).await.summary, "no Terraform");
    server.give(plain());
    stand_in(running.dir.path(), &real, "exec \"$REAL\" \"$@\"");
    let (record, _) = server.completed().await;
    assert!(record.failed.is_empty() && record.acquires >= 2);
}

/// A daemon that waits for Terraform must still notice that the server refuses it.
#[tokio::test(flavor = "multi_thread")]
async fn an_unhealthy_daemon_that_is_turned_away_ends() {
    let server = Server::new();
    server.refuse_connections(Some(coder_provisioner::ConnectError::Forbidden("scope".to_owned())));
    let mut running = without_terraform(&server);
    assert!(running.ended().await.unwrap_err().to_string().contains("scope"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_that_failed_is_tried_again() {
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let (releases, target) = (dir.path().join("releases"), dir.path().join("target"));
    std::fs::create_dir(&releases).unwrap();
    let remote = Remote::start(&releases, None).await;
    server.give(plain());
    let real = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases");
    let running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::Paths(Vec::new());
        config.terraform_retry = CHECK_INTERVAL;
        let mut install = InstallConfig::new(&target, Some(&format!("{}terraform", remote.url()))).unwrap();
        install.keys = std::fs::read_to_string(real.join("test-key.asc")).unwrap();
        config.install = Some(install);
    });
    let problem = unhealthy(&running).await;
    assert_eq!(problem.summary, "no Terraform");
    assert!(problem.detail.contains("index.json cannot be fetched: the server answers 404"), "{problem:?}");
    coder_testkit::wait::eventually("a third try", || remote.count("index.json") >= 3).await;
    assert_eq!(server.record().acquires, 0);
    std::os::unix::fs::symlink(real.join("terraform"), releases.join("terraform")).unwrap();
    let (record, _) = server.completed().await;
    assert!(record.failed.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_the_machine_is_not_taken_for_a_wrong_program() {
    let real = coder_requirements::require!(program Terraform);
    let server = Server::new();
    let running = without_terraform(&server);
    let limit = running.dir.path().join("limit");
    std::fs::write(&limit, "").unwrap();
    // What Go prints when it cannot start a thread.
    let words = "runtime: failed to create new OS thread (have 9 already; errno=11)";
    let script = format!(
        "if [ -e '{}' ]; then echo '{words}' >&2; exit 2; fi\nexec \"$REAL\" \"$@\"",
        limit.display()
    );
    stand_in(running.dir.path(), &real, &script);
    let waiting = running.status.wait_for(|status| {
        status.health.problem().is_some_and(|problem| problem.summary == "Terraform cannot be run")
    });
    let status = tokio::time::timeout(Duration::from_secs(60), waiting).await.unwrap().unwrap();
    let detail = &status.health.problem().unwrap().detail;
    assert!(detail.contains("no further process or thread can be created (ulimit -u: "), "{detail}");
    assert!(!detail.contains("is not a terraform program"), "{detail}");
    // The file is unchanged, and is probed again anyway.
    std::fs::remove_file(&limit).unwrap();
    running.status.wait_for(|status| status.health == Health::Ready).await.unwrap();
    // The same during a job.
    let late = format!("case \"$1\" in init) echo '{words}' >&2; exit 2;; esac\nexec \"$REAL\" \"$@\"");
    stand_in(running.dir.path(), &real, &late);
    server.give(plain());
    let (_, failed) = server.failed().await;
    assert!(failed.error.contains("errno=11") && failed.error.contains("ulimit -u: "), "{}", failed.error);
}
