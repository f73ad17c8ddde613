//! Daemons and Terraforms that are killed during an apply: what was written is not lost.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use coder_testkit::wait::eventually;
use coder_wire::extension::Extensions;
use coder_wire::messages::provisionerd as pb;
use serde::Deserialize;

use crate::daemon_process::{Child, listen};
use crate::fake_server::{Record, Server};
use crate::fixture::{Running, processes_with, start, tar};

/// How often something is killed; 100 for the long form.
fn rounds() -> usize {
    std::env::var("CODER_TEST_KILLS").ok().and_then(|count| count.parse().ok()).unwrap_or(3)
}

/// What was written this long before a kill is on the server.
const LOSS_WINDOW: Duration = Duration::from_millis(250);

/// Ten resources, one after the other, each of which takes a while.
fn ten() -> String {
    let mut text = String::new();
    for index in 0..10 {
        let after = if index == 0 {
            String::new()
        } else {
            format!("  depends_on = [terraform_data.r{}]\n", index - 1)
        };
        text.push_str(&format!(
            "resource \"terraform_data\" \"r{index}\" {{\n  input = {index}\n{after}  provisioner \"local-exec\" {{ command = \"echo working; sleep 0.1\" }}\n}}\n"
        ));
    }
    text
}

#[derive(Deserialize)]
struct State {
    serial: u64,
}

fn serial(path: &Path) -> Option<u64> {
    serde_json::from_slice::<State>(&std::fs::read(path).ok()?).ok().map(|state| state.serial)
}

/// The state file of the only job in the cache directory.
fn state_file(cache: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(cache.join("work")).ok()?.flatten();
    let mut files = entries.map(|entry| entry.path().join("template/terraform.tfstate"));
    files.find(|file| file.exists())
}

fn newest(record: &Record) -> u64 {
    record.journals.iter().chain(&record.salvages).map(|journal| journal.serial).max().unwrap_or(0)
}

/// Waits until the state has changed this often, or the apply has ended. Returns the last serial that was written long enough
/// before.
async fn watch(server: &Server, cache: &Path, changes: usize) -> u64 {
    let mut seen: Vec<(Instant, u64)> = Vec::new();
    eventually("the state has changed", || {
        if let Some(serial) = state_file(cache).and_then(|file| serial(&file))
            && seen.last().is_none_or(|(_, last)| *last != serial)
        {
            seen.push((Instant::now(), serial));
        }
        seen.len() >= changes || server.record().is_over()
    })
    .await;
    let promised = seen.iter().rev().find(|(at, _)| at.elapsed() >= LOSS_WINDOW);
    promised.map_or(0, |(_, serial)| *serial)
}

/// Numbers of changes of the state that are spread over the apply.
fn changes(round: usize) -> usize {
    1 + round * 3 % 8
}

#[tokio::test(flavor = "multi_thread")]
async fn states_of_a_killed_daemon_reach_the_server_after_its_restart() {
    coder_requirements::require!(Terraform);
    for round in 0..rounds() {
        let server = Server::new();
        server.extended().grant(Extensions::ALL);
        let dir = tempfile::tempdir().unwrap();
        let (socket, cache) = (dir.path().join("s"), dir.path().join("cache"));
        listen(&server, &socket);
        let daemon = Child::start(&socket, &cache, &[]);
        let job = start(tar(&[("main.tf", &ten())]));
        let id = job.job_id.clone();
        server.give(job);
        server.wait_for("the apply", |record| record.has_line("(local-exec): working")).await;
        let promised = watch(&server, &cache, changes(round)).await;
        drop(daemon);
        let at_kill = newest(&server.record());
        assert!(
            at_kill >= promised,
            "round {round}: the server has {at_kill}, and {promised} was written in time"
        );

        let left = state_file(&cache);
        let _again = Child::start(&socket, &cache, &[]);
        if let Some(left) = left {
            let record = server.wait_for("the state", |record| !record.salvages.is_empty()).await;
            let salvaged = &record.salvages[0];
            assert_eq!(salvaged.job_id, id);
            assert_eq!(salvaged.token, "token 0");
            // The state of the killed daemon's Terraform was salvaged.
            assert!(salvaged.serial >= at_kill, "round {round}: {} after {at_kill}", salvaged.serial);
            eventually("the salvaged state is removed", || !left.exists()).await;
        } else {
            assert!(server.record().is_over(), "round {round}: the job had ended");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_stays_on_the_disk_until_the_server_has_the_result() {
    coder_requirements::require!(Terraform);
    let server = Server::new();
    server.extended().grant(Extensions::ALL);
    server.keep_silent();
    let dir = tempfile::tempdir().unwrap();
    let (socket, cache) = (dir.path().join("s"), dir.path().join("cache"));
    listen(&server, &socket);
    let daemon = Child::start(&socket, &cache, &[]);
    server.give(start(tar(&[("main.tf", "resource \"terraform_data\" \"one\" { input = 1 }")])));
    let record = server.wait_for("the result", |record| !record.unanswered.is_empty()).await;
    drop(daemon);
    let Some(pb::completed_job::Type::WorkspaceBuild(build)) = &record.unanswered[0].r#type else {
        panic!("no arm")
    };
    let reported: State = serde_json::from_slice(&build.state).unwrap();
    let left = state_file(&cache).expect("the state is on the disk");
    assert_eq!(serial(&left), Some(reported.serial));

    let _again = Child::start(&socket, &cache, &[]);
    let record = server.wait_for("the state", |record| !record.salvages.is_empty()).await;
    assert_eq!(record.salvages[0].serial, reported.serial);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_terraform_fails_the_build_with_what_it_had_written() {
    coder_requirements::require!(Terraform);
    let mut in_time = 0;
    for round in 0..rounds() {
        let server = Server::new();
        server.extended().grant(Extensions::ALL);
        let running = Running::start(&server);
        server.give(start(tar(&[("main.tf", &ten())])));
        server.wait_for("the apply", |record| record.has_line("(local-exec): working")).await;
        let cache = running.dir.path().join("cache");
        let work = format!("CODER_PROVISIONER_WORK_DIR={}/", cache.display());
        let promised = watch(&server, &cache, changes(round)).await;
        let of_the_job = processes_with("environ", &work);
        let mut applies = processes_with("cmdline", "terraform\0apply\0");
        applies.retain(|pid| of_the_job.contains(pid));
        let pids = applies.iter().map(u32::to_string);
        let killed = Command::new("kill").args(["-s", "KILL"]).args(pids).status().unwrap();
        let record = server.wait_for("the end of the job", Record::is_over).await;
        if !killed.success() {
            // It had ended by itself.
            continue;
        }
        let Some(failed) = record.failed.first() else { continue };
        in_time += 1;
        assert!(failed.error.starts_with("terraform apply: signal 9"), "{}", failed.error);
        let Some(pb::failed_job::Type::WorkspaceBuild(build)) = &failed.r#type else { panic!("no arm") };
        let state: State = serde_json::from_slice(&build.state).unwrap();
        assert!(state.serial >= promised && newest(&record) >= promised, "round {round}");
    }
    assert!(in_time > 0, "no kill met an apply");
}
