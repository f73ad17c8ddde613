//! Full disks: that of the server, while users and daemons write to it, and that of a daemon.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use coder_api::client::{Credential, ServeProvisionerDaemonRequest};
use coder_api::files::TAR;
use coder_requirements::Requirement;
use coder_wire::daemon::Client as Calls;
use coder_wire::messages::provisioner::LogLevel;
use coder_wire::messages::provisionerd::{CompletedJob, Log, LogSource, UpdateJobRequest, completed_job};
use coder_wire::mux::{Config, Session};
use coder_wire::ws::Socket;

use crate::crash_recovery::{
    ANSWER_LIMIT, Api, SMALL_TEMPLATE, order_as, refused, wait_for_file, wait_for_status_of,
};
use crate::durability::archive;
use crate::end_to_end::{json, write};
use crate::processes::Server;
use crate::program::{Home, until};

/// A small file system.
struct Tmpfs {
    folder: tempfile::TempDir,
}

impl Tmpfs {
    /// None where mounting is not permitted. Then the test is skipped, and only a limit of file sizes simulates a full
    /// disk.
    #[track_caller]
    fn new(mebibytes: u32) -> Option<Self> {
        if !coder_requirements::has(Requirement::Mounts) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m,mode=0777");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(folder.path());
        assert!(mount.status().unwrap().success(), "the probe could mount");
        Some(Self { folder })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }

    /// Fills it completely.
    fn fill(&self) {
        let mut filler = File::options().append(true).create(true).open(self.filler()).unwrap();
        while filler.write(&[0; 4096]).is_ok() {}
    }

    fn make_room(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: processes that still use it keep their handles.
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}

/// A server whose database is on `disk`.
fn server_on(disk: &Tmpfs) -> Server {
    let mut home = Home::new();
    home.set("CODER_DATA_DIR", disk.path().join("data").display().to_string());
    Server::in_home(home, "127.0.0.1:0", &[])
}

/// Fills the disk until the server can store nothing more, not even in the allocated space of its files.
fn fill(disk: &Tmpfs, api: &Api, kept: &mut Vec<String>) {
    disk.fill();
    let first = kept.len();
    let refusal = (first..first + 20_000).find_map(|number| {
        let name = format!("kept-{number}");
        let made = api.new_key(&name);
        made.map(|()| kept.push(name)).err()
    });
    refused(Err::<(), _>(refusal.unwrap()), 507, "The disk is full");
    disk.fill();
}

/// Acknowledged writes are stored.
#[track_caller]
fn is_kept(api: &Api, kept: &[String]) {
    let keys = api.run(async |client| client.provisioner_keys(api.organization).await).unwrap();
    for name in kept {
        assert!(keys.iter().any(|key| key.name == *name), "{name} is lost");
    }
}

#[test]
fn a_limit_of_file_sizes() {
    // 4 MiB for each file.
    let server = Server::limited(8192);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let body = |number: usize| archive(&format!("{number} {}", "x".repeat(512 * 1024)));
    let mut kept = Vec::new();
    let refusal = (0..32).find_map(|number| {
        let uploaded = api.run(async |client| client.upload(TAR, body(number).into()).await);
        uploaded.map(|file| kept.push(file)).err()
    });
    refused(Err::<(), _>(refusal.unwrap()), 507, "The disk is full");
    assert!(!kept.is_empty());
    for _ in 0..3 {
        assert!(api.run(async |client| client.templates("").await).unwrap().is_empty());
        for file in &kept {
            api.run(async |client| client.download(*file, false).await).unwrap();
        }
        let again = api.run(async |client| client.upload(TAR, body(100).into()).await);
        refused(again, 507, "The disk is full");
    }

    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let server = server.restart(&address);
    server.home().run(&["server", "check"]).success();
    for file in &kept {
        api.run(async |client| client.download(*file, false).await).unwrap();
    }
    api.run(async |client| client.upload(TAR, body(100).into()).await).unwrap();
    api.new_key("k").unwrap();
}

#[test]
fn a_daemon_that_reports_to_a_server_with_a_full_disk() {
    coder_requirements::require!(Terraform);
    let Some(disk) = Tmpfs::new(16) else { return };
    let server = server_on(&disk);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let daemon = server.daemon(&home, "steady", &[]);
    let at = |name: &str| home.path().join(name);
    let script = format!(
        "echo before; : > {}; while [ ! -e {} ]; do sleep 0.05; done; for i in $(seq 300); do echo line $i. of a disk that is full; done; : > {}",
        at("applying").display(),
        at("full").display(),
        at("said").display()
    );
    order_as(&home, "w", &script);
    wait_for_file(&at("applying"));
    let mut kept = Vec::new();
    fill(&disk, &api, &mut kept);
    std::fs::write(at("full"), "").unwrap();
    wait_for_file(&at("said"));
    // The job has ended at the daemon, which holds it while nothing can be stored.
    for number in 0..6 {
        refused(api.new_key(&format!("not-{number}")), 507, "The disk is full");
        is_kept(&api, &kept);
        assert_eq!(json(&home, &["list"])[0]["latest_build"]["job"]["status"], "running");
        std::thread::park_timeout(Duration::from_millis(300));
    }
    home.run(&["provisioner", "keys", "create", "no"]).refused("The disk is full");

    disk.make_room();
    wait_for_status_of(&home, "w", "running");
    let logs = home.run(&["logs", "-f", "w"]).success().out;
    for number in 1..=300 {
        let line = format!("line {number}. of");
        assert_eq!(logs.matches(&line).count(), 1, "{line:?} once in:\n{logs}");
    }
    assert!(home.run(&["state", "pull", "w"]).success().out.contains("terraform_data"));
    is_kept(&api, &kept);
    api.new_key("room").unwrap();
    server.home().run(&["server", "check"]).success();
    home.run(&["stop", "w", "-y"]).success();
    home.run(&["delete", "w", "-y"]).success();
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    let server = server.restart(&address);
    server.home().run(&["server", "check"]).success();
    is_kept(&api, &kept);
    drop(daemon);
}

/// Logs and result at once, from a daemon without Terraform: both calls are pending while the disk is full.
#[test]
fn a_result_with_a_large_state_reaches_a_server_with_a_full_disk() {
    let Some(disk) = Tmpfs::new(24) else { return };
    let server = server_on(&disk);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let calls = api.run(async |client| {
        let upgraded = client
            .serve(&ServeProvisionerDaemonRequest::new(Credential::Session, "scripted", "v2.30.0"))
            .await?;
        Ok(Calls::new(Session::client(Socket::client(upgraded.stream), Config::default())))
    });
    let calls = calls.unwrap();
    let acquire = || {
        let job = api.runtime.block_on(async {
            tokio::time::timeout(ANSWER_LIMIT, calls.acquire(std::future::pending())).await
        });
        job.unwrap().unwrap().unwrap().job_id
    };
    let version = api.import_of(archive(SMALL_TEMPLATE), &[]);
    let complete = |job_id: String, result| CompletedJob { job_id, r#type: Some(result) };
    let imported =
        complete(acquire(), completed_job::Type::TemplateImport(completed_job::TemplateImport::default()));
    api.runtime.block_on(calls.complete_job(&imported)).unwrap();
    let made = api.run(async |client| {
        let template = coder_api::templates::CreateTemplateRequest {
            name: "t".to_owned(),
            version_id: Some(version.id),
            ..Default::default()
        };
        let template = client.create_template(api.organization, &template).await?;
        let workspace = coder_api::workspaces::CreateWorkspaceRequest {
            template_id: Some(template.id),
            name: "w".to_owned(),
            ..Default::default()
        };
        client.create_workspace("me", &workspace).await
    });
    let build = made.unwrap().latest_build;
    let job_id = acquire();

    let mut kept = Vec::new();
    fill(&disk, &api, &mut kept);
    let line = |number: usize| Log {
        source: LogSource::Provisioner as i32,
        level: LogLevel::Info as i32,
        created_at: 1_780_000_000_000,
        stage: "Apply".to_owned(),
        output: format!("line {number}. {}", "x".repeat(400)),
    };
    let logs = UpdateJobRequest {
        job_id: job_id.clone(),
        logs: (1..=500).map(line).collect(),
        ..UpdateJobRequest::default()
    };
    // The daemon repeats unacknowledged calls, and the server acknowledges nothing while it cannot store.
    let stuck = |kept: &[String]| {
        for number in 0..4 {
            refused(api.new_key(&format!("not-{number}")), 507, "The disk is full");
            is_kept(&api, kept);
            std::thread::park_timeout(Duration::from_millis(200));
        }
    };
    let reporter = calls.clone();
    let updating = api.runtime.spawn(async move { reporter.update_job(&logs).await.map(drop) });
    stuck(&kept);
    assert!(!updating.is_finished(), "logs are not acknowledged");
    disk.make_room();
    api.runtime.block_on(updating).unwrap().unwrap();

    fill(&disk, &api, &mut kept);
    // Longer than the allocated space of the files.
    let state: Vec<u8> = (0..3 << 20).map(|index: u32| b'a' + (index % 23) as u8).collect();
    let result = completed_job::WorkspaceBuild { state: state.clone().into(), ..Default::default() };
    let result = complete(job_id, completed_job::Type::WorkspaceBuild(result));
    let reporter = calls.clone();
    let completing = api.runtime.spawn(async move { reporter.complete_job(&result).await });
    stuck(&kept);
    assert!(!completing.is_finished(), "a result is not acknowledged");
    let running = api.run(async |client| client.build(build.id).await).unwrap();
    assert!(running.job.completed_at.is_none());
    disk.make_room();
    api.runtime.block_on(completing).unwrap().unwrap();

    let ended = api.run(async |client| client.build(build.id).await).unwrap();
    assert_eq!((ended.job.error.as_str(), ended.job.completed_at.is_some()), ("", true));
    let stored = api.run(async |client| client.build_state(build.id).await).unwrap();
    assert!(stored.0 == state, "the state is whole");
    let logs = home.run(&["logs", "-f", "w"]).success().out;
    assert!((1..=500).all(|number| logs.matches(&format!("line {number}. ")).count() == 1), "each line once");
    is_kept(&api, &kept);
    server.home().run(&["server", "check"]).success();
}

#[test]
fn a_daemon_whose_own_disk_is_full() {
    coder_requirements::require!(Terraform);
    let Some(disk) = Tmpfs::new(4) else { return };
    let server = Server::start(&[]);
    let home = server.first_user();
    let api = Api::new(&server, &home);
    let cache = disk.path().join("cache");
    let daemon = server.daemon(&home, "small", &["--cache-dir", cache.to_str().unwrap()]);
    let failed = |text: &str| {
        let failed = api.ended(&api.import_of(archive(text), &[]));
        let error = failed.job.error;
        assert!(error.to_lowercase().contains("no space left on device"), "{error}");
        assert!(error.contains("\"main.tf\" cannot be written"), "it names the file: {error}");
        assert!(error.contains("--cache-dir"), "it contains the next step: {error}");
    };
    disk.fill();
    // Even the template cannot be unpacked.
    failed(&format!("# {}\n{SMALL_TEMPLATE}", "x".repeat(10_000)));
    failed(&format!("# {}\n{SMALL_TEMPLATE}", "y".repeat(10_000)));
    disk.make_room();
    assert_eq!(api.ended(&api.import_of(archive(SMALL_TEMPLATE), &[])).job.error, "");

    // Terraform itself fills the disk in the middle of an apply. Its state is still reported.
    let text = r#"
resource "terraform_data" "made" { input = "x" }
resource "terraform_data" "big" {
  depends_on = [terraform_data.made]
  provisioner "local-exec" { command = "head -c 8388608 /dev/zero > big" }
}
"#;
    let directory = write(&home, "big", text);
    home.run(&["templates", "push", "-y", "-d", &directory]).success();
    home.run(&["create", "w", "--template", "big", "-y", "--no-wait"]).success();
    let build = wait_for_status_of(&home, "w", "failed");
    let error = build["job"]["error"].as_str().unwrap();
    assert!(error.to_lowercase().contains("no space left on device"), "{error}");
    assert!(error.contains("--cache-dir"), "it contains the next step: {error}");
    home.run(&["delete", "w", "-y"]).success();
    let left = until(ANSWER_LIMIT, || {
        let entries = std::fs::read_dir(cache.join("work")).unwrap().flatten();
        entries.filter(|entry| entry.path().is_dir()).count().eq(&0).then_some(())
    });
    assert!(left.is_some(), "directories of ended jobs are removed");
    server.home().run(&["server", "check"]).success();
    drop(daemon);
}
