//! Installing Terraform: valid and invalid releases, slow and broken servers, several daemons at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coder_provisioner::{InstallConfig, TerraformSource};
use coder_testkit::wait::eventually;
use coder_wire::messages::provisionerd as pb;

use crate::fake_server::{Record, Server};
use crate::fixture::{PLAIN, Running, start, tar};
use crate::release_server::{Fault, Remote};

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases")
}

fn file(path: &str) -> Vec<u8> {
    std::fs::read(releases().join(path)).unwrap()
}

/// The archive for this platform.
fn archive(version: &str) -> String {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    format!("terraform/{version}/terraform_{version}_linux_{arch}.zip")
}

fn list(version: &str) -> String {
    format!("terraform/{version}/terraform_{version}_SHA256SUMS")
}

/// A daemon that only has what it installs into `dir`.
fn daemon(server: &Server, remote: &Remote, dir: &Path) -> Running {
    Running::with(server, |config, _| {
        config.terraform = TerraformSource::Paths(Vec::new());
        let mirror = format!("{}terraform", remote.url());
        let mut install = InstallConfig::new(dir, Some(&mirror)).unwrap();
        install.keys = String::from_utf8(file("test-key.asc")).unwrap();
        install.read_timeout = Duration::from_millis(500);
        config.install = Some(install);
    })
}

fn template(constraint: &str) -> pb::AcquiredJob {
    let text = format!("terraform {{\n  required_version = \"{constraint}\"\n}}\n{PLAIN}");
    start(tar(&[("main.tf", &text)]))
}

async fn ended(server: &Server, jobs: usize) -> Record {
    server.wait_for("the jobs", |record| record.completed.len() + record.failed.len() == jobs).await
}

/// The content besides the lock.
fn installed(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.retain(|name| name != "lock");
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn required_versions_are_installed_once() {
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let remote = Remote::start(releases(), None).await;
    let running = daemon(&server, &remote, dir.path());
    // The newest version when nothing is required, without waiting for a job.
    eventually("the newest version is installed", || installed(dir.path()) == ["1.10.0"]).await;
    let jobs = [
        (start(tar(&[("main.tf", PLAIN)])), "1.10.0"),
        (template("~> 1.5.0"), "1.5.7"),
        (template("< 1.10, != 1.5.7"), "1.9.8"),
        (template("~> 1.5.0"), "1.5.7"),
    ];
    for (count, (job, version)) in (1..).zip(jobs) {
        server.give(job);
        let record = ended(&server, count).await;
        assert!(record.failed.is_empty(), "{version}: {:?}", record.failed);
        assert!(
            record.has_line(&format!("Using Terraform {version} ({}", dir.path().display())),
            "{version}"
        );
    }
    assert_eq!(installed(dir.path()), ["1.10.0", "1.5.7", "1.9.8"]);
    assert_eq!(remote.count(".zip"), 3, "{:?}", remote.requests());
    assert!(server.record().has_line("Installing Terraform 1.5.7 from http://127.0.0.1"));
    assert!(server.record().has_line("Terraform 1.9.8 is installed in"));
    drop(running);
    // Another daemon on the directory needs no server.
    let (server, nowhere) = (Server::new(), Remote::start("/nowhere", None).await);
    let _running = daemon(&server, &nowhere, dir.path());
    server.give(template("~> 1.9.0"));
    assert!(ended(&server, 1).await.failed.is_empty());
    assert!(nowhere.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_installed_that_is_not_whole_and_genuine() {
    let real = coder_requirements::require!(program Terraform);
    let (sums, signature) = (list("1.9.8"), format!("{}.sig", list("1.9.8")));
    let mut forged = file(&sums);
    forged[0] = if forged[0] == b'0' { b'1' } else { b'0' };
    let cut = file(&signature)[..200].to_vec();
    let stranger = file("signatures/by-stranger.sig");
    let another = file(&archive("1.5.7"));
    let cases = [
        (
            "terraform/index.json".to_owned(),
            Fault::Status(404),
            "index.json cannot be fetched: the server answers 404",
        ),
        ("terraform/index.json".to_owned(), Fault::Other(b"<html>".to_vec()), "is not an index of releases"),
        ("terraform/index.json".to_owned(), Fault::Silence, "sent nothing for 0.5 s"),
        (sums.clone(), Fault::Other(forged), "SHA256SUMS is invalid: it does not match this file"),
        (sums, Fault::Hang, "sent nothing for 0.5 s"),
        (signature.clone(), Fault::Other(stranger), "which is not trusted"),
        (signature.clone(), Fault::Other(cut), "is invalid: it is not OpenPGP: it is truncated"),
        (signature, Fault::Status(503), "the server answers 503"),
        (archive("1.9.8"), Fault::Other(another), "but its signed list says"),
        (archive("1.9.8"), Fault::Cut, "cannot be fetched"),
        (archive("1.9.8"), Fault::Hang, "sent nothing for 0.5 s"),
        (archive("1.9.8"), Fault::Status(404), "the server answers 404"),
    ];
    let dir = tempfile::tempdir().unwrap();
    // If a program exists, a daemon installs nothing when it starts.
    std::fs::create_dir_all(dir.path().join("1.2.0")).unwrap();
    std::os::unix::fs::symlink(real, dir.path().join("1.2.0/terraform")).unwrap();
    for (path, fault, wanted) in cases {
        let (server, remote) = (Server::new(), Remote::start(releases(), None).await);
        remote.fail(&path, fault.clone());
        let _running = daemon(&server, &remote, dir.path());
        server.give(template("~> 1.9.0"));
        let record = ended(&server, 1).await;
        let error = &record.failed.first().expect("the job fails").error;
        assert!(error.contains(wanted), "{path} {fault:?}: {error}");
        assert!(error.contains("\"~> 1.9.0\" (main.tf:2)"), "{error}");
        assert_eq!(installed(dir.path()), ["1.2.0"], "{path} {fault:?}");
    }
    // The same directory works once the server does.
    let (server, remote) = (Server::new(), Remote::start(releases(), None).await);
    let _running = daemon(&server, &remote, dir.path());
    server.give(template("~> 1.9.0"));
    assert!(ended(&server, 1).await.failed.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_of_one_machine_download_once() {
    coder_requirements::require!(Terraform);
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    // The leftovers of a killed daemon do not matter.
    std::fs::create_dir_all(dir.path().join("new-left")).unwrap();
    std::fs::write(dir.path().join("new-left/terraform"), "half").unwrap();
    let remote = Remote::start(releases(), None).await;
    let _running = [(); 3].map(|()| daemon(&server, &remote, dir.path()));
    for _ in 0..6 {
        server.give(template("~> 1.9.0"));
    }
    let record = ended(&server, 6).await;
    assert!(record.failed.is_empty(), "{:?}", record.failed);
    assert_eq!(remote.count(&archive("1.9.8")), 1, "{:?}", remote.requests());
    assert!(!installed(dir.path()).contains(&"new-left".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn unavailable_versions_are_an_error_that_lists_the_offer() {
    let (server, dir) = (Server::new(), tempfile::tempdir().unwrap());
    let remote = Remote::start(releases(), None).await;
    let _running = daemon(&server, &remote, dir.path());
    server.give(template("~> 1.6.0"));
    let (_, failed) = server.failed().await;
    for wanted in ["\"~> 1.6.0\" (main.tf:2)", "none of the 4 releases", "--terraform-path"] {
        assert!(failed.error.contains(wanted), "{}", failed.error);
    }
    // Without permission to install, no server is asked.
    let server = Server::new();
    let running = Running::with(&server, |config, _| {
        config.terraform = TerraformSource::Paths(Vec::new());
    });
    let status = running.status.wait_for(|status| status.health.problem().is_some()).await.unwrap();
    let problem = status.health.problem().unwrap();
    assert!(
        problem.detail.starts_with("this daemon has no Terraform: ")
            && problem.detail.contains("--terraform-install"),
        "{problem:?}"
    );
}
