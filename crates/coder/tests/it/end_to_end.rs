//! The main job through every layer: push a template, build workspaces on an external daemon, with real Terraform.

use std::path::{Path, PathBuf};

use coder_domain::clock::{Clock as _, SystemClock};

use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::{Home, until};

fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name)
}

pub(crate) fn json(home: &Home, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&home.run(&[args, &["-o", "json"]].concat()).success().out).unwrap()
}

pub(crate) fn write(home: &Home, name: &str, text: &str) -> String {
    let directory = home.path().join(name);
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("main.tf"), text).unwrap();
    directory.display().to_string()
}

#[test]
fn push_create_stop_start_delete_on_a_tagged_daemon() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let args = ["provisioner", "keys", "create", "pool", "--tag", "environment=on_prem"];
    let key = home.run(&args).success().out.lines().last().unwrap().to_owned();
    let mut elsewhere = Home::new();
    elsewhere.set("CODER_URL", &server.url).set("CODER_PROVISIONER_DAEMON_KEY", key);
    let mut daemon = server.daemon(&elsewhere, "pool-1", &[]);

    let hello = example("hello");
    let tag = "environment=on_prem";
    let push = ["templates", "push", "hello", "-d", hello.to_str().unwrap(), "--provisioner-tag", tag];
    home.run(&push).refused("pass --yes");
    let outcome = home.answer(&push, "\n").success();
    assert_eq!(outcome.out, "");
    assert!(outcome.err.contains("coder_agent") || outcome.err.contains("agent main"), "{}", outcome.err);
    assert_eq!(json(&home, &["templates", "list"])[0]["Template"]["name"], "hello");

    let create =
        ["create", "mine", "--template", "hello", "--parameter", "greeting=moin", "-y", "--stop-after", "2h"];
    let outcome = home.run(&create).success();
    assert!(!outcome.err.contains("WARN"), "{}", outcome.err);
    assert!(outcome.err.contains("==>") && outcome.err.contains("✔"), "{}", outcome.err);
    let shown = home.run(&["show", "mine"]).success().out;
    assert!(
        shown.contains("running") && shown.contains("agent main") && shown.contains("greeting = moin"),
        "{shown}"
    );
    assert!(home.run(&["list"]).success().out.contains("admin/mine"));

    let jobs = json(&home, &["provisioner", "jobs", "list"]);
    let built = jobs.as_array().unwrap().iter().find(|job| job["type"] == "workspace_build").unwrap();
    assert_eq!(built["worker_name"], "pool-1");
    assert_eq!(built["tags"]["environment"], "on_prem");
    assert_eq!(built["status"], "succeeded");
    // The build says what ran it, in JSON, in the table and to people.
    let program = &json(&home, &["show", "mine"])["latest_build"]["job"]["program"];
    assert_eq!((program, program["product"].as_str()), (&built["program"], Some("terraform")));
    let words = format!("Terraform {}", program["version"].as_str().unwrap());
    assert!(shown.contains(&format!("Built with {words}\n")), "{shown}");
    let table = home.run(&["provisioner", "jobs", "list", "-c", "type,program"]).success().out;
    assert!(table.contains(&words), "{table}");

    let state: serde_json::Value =
        serde_json::from_str(&home.run(&["state", "pull", "mine"]).success().out).unwrap();
    assert!(!state["resources"].as_array().unwrap().is_empty());
    let logs = home.run(&["logs", "mine"]).success().out;
    assert!(logs.contains("terraform_data") && logs.contains("[info]"), "{logs}");

    home.run(&["stop", "mine"]).refused("pass --yes");
    home.run(&["stop", "mine", "-y"]).success();
    assert_eq!(json(&home, &["list"])[0]["latest_build"]["status"], "stopped");
    home.run(&["start", "mine", "-y"]).success();
    let again = home.run(&["start", "mine", "-y"]).success();
    assert!(again.err.contains("running already"), "{}", again.err);
    home.run(&["restart", "mine", "-y"]).success();
    assert_eq!(json(&home, &["list"])[0]["latest_build"]["build_number"], 5);
    assert!(home.run(&["logs", "mine", "-n", "1"]).success().out.contains("terraform_data"));

    // A second version takes the tags of the first.
    home.run(&["templates", "push", "hello", "-d", hello.to_str().unwrap(), "-y", "--name", "v2"]).success();
    let versions = home.run(&["templates", "versions", "list", "hello"]).success().out;
    assert!(versions.contains("v2") && versions.matches("active").count() == 1, "{versions}");
    home.run(&["templates", "delete", "hello", "-y"]).refused("All workspaces must be deleted before");
    home.run(&["delete", "mine", "-y"]).success();
    assert_eq!(json(&home, &["list"]), serde_json::json!([]));
    home.run(&["templates", "delete", "hello", "-y"]).success();
    server.home().run(&["server", "check"]).success();

    daemon.signal("TERM");
    assert!(daemon.end().success());
}

#[test]
fn a_job_waits_for_its_daemon_and_can_be_canceled() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let directory = write(&home, "empty", "resource \"terraform_data\" \"x\" {}\n");
    let push = |name: &str| {
        let mut command = home.command(&["templates", "push", name, "-y", "-d", &directory]);
        command.stderr(std::process::Stdio::piped()).stdin(std::process::Stdio::null()).spawn().unwrap()
    };
    let first = push("first");
    let waiting = until(WAIT_LIMIT, || {
        let jobs = json(&home, &["provisioner", "jobs", "list", "--status", "pending"]);
        jobs[0]["id"].as_str().map(str::to_owned)
    });
    let listed = home.run(&["provisioner", "jobs", "list"]).success().out;
    assert!(listed.contains("pending") && listed.contains("template_version_import"), "{listed}");
    home.run(&["provisioner", "jobs", "cancel", &waiting.unwrap()]).success();
    let output = first.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("canceled"), "{text}");

    let second = push("second");
    let daemon = server.daemon(&home, "late", &[]);
    let output = second.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    drop(daemon);
}

#[test]
fn built_in_daemons_and_values_of_variables() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--provisioner-daemons=1", "--cache-dir", "cache"]);
    let home = server.first_user();
    let text = "variable \"size\" {\n  type = string\n}\n\nresource \"terraform_data\" \"x\" {\n  input = var.size\n}\n";
    let directory = write(&home, "sized", text);
    let push = ["templates", "push", "-y", "-d", &directory];
    home.run(&push).refused("--variable size=VALUE");
    home.run(&[&push[..], &["--variable", "size=large"]].concat()).success();
    let slip = home.run(&[&push[..], &["--variable", "sise=large"]].concat());
    assert!(
        slip.err.contains("no variable \"sise\"") && slip.err.matches("WARN").count() == 1,
        "{}",
        slip.err
    );
    std::fs::write(format!("{directory}/values.auto.tfvars"), "size = \"small\"\n").unwrap();
    assert!(!home.run(&push).success().err.contains("WARN"));
    home.run(&["create", "w", "--template", "sized", "-y"]).success();
    assert!(home.run(&["state", "pull", "w"]).success().out.contains("small"));

    let state = home.path().join("state.json");
    home.run(&["state", "pull", "w", state.to_str().unwrap()]).success();
    home.run(&["state", "push", "--no-build", "w", state.to_str().unwrap()]).success();
    home.run(&["state", "push", "w", state.to_str().unwrap()]).success();

    std::fs::write(&state, "garbage").unwrap();
    home.run(&["state", "push", "w", state.to_str().unwrap()]).refused("it is not a Terraform state");
    home.run(&["state", "push", "w", "-"]).refused("pass --no-build");

    let broken = write(&home, "broken", "resource \"terraform_data\" {\n");
    home.run(&["templates", "push", "broken", "-y", "-d", &broken]).refused("failed");
}

#[test]
fn ctrl_c_cancels_a_push_that_waits() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let directory = write(&home, "empty", "resource \"terraform_data\" \"x\" {}\n");
    let mut command = home.command(&["templates", "push", "-y", "-d", &directory]);
    command.stderr(std::process::Stdio::piped()).stdin(std::process::Stdio::null());
    let push = command.spawn().unwrap();
    let pending = until(WAIT_LIMIT, || {
        let jobs = json(&home, &["provisioner", "jobs", "list"]);
        (jobs[0]["status"] == "pending").then_some(())
    });
    assert!(pending.is_some());
    let status =
        std::process::Command::new("kill").args(["-s", "INT", &push.id().to_string()]).status().unwrap();
    assert!(status.success());
    let output = push.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(json(&home, &["provisioner", "jobs", "list"])[0]["status"], "canceled");
    assert_eq!(json(&home, &["templates", "list"]), serde_json::json!([]));
}

#[test]
fn an_interrupted_daemon_cancels_its_job() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "interrupted", &[]);
    start_at_the_gate(&home, &home.path().join("never"));
    daemon.signal("INT");
    assert!(daemon.end().success(), "{}", daemon.log());
    let build = json(&home, &["list"])[0]["latest_build"].clone();
    assert!(build["status"] == "failed" || build["status"] == "canceled", "{build}");
    assert!(build["job"]["completed_at"].is_string(), "{build}");
}

#[test]
fn a_second_signal_ends_a_daemon_at_once() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "hurried", &[]);
    start_at_the_gate(&home, &home.path().join("never"));
    daemon.signal("TERM");
    daemon.wait_for_log("attempting graceful shutdown");
    assert_eq!(daemon.signal_again("TERM").code(), Some(1), "{}", daemon.log());
    daemon.wait_for_log("stopped at once");
}

#[test]
fn no_wait_waits_for_no_busy_daemon() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "only", &[]);
    let gate = home.path().join("gate");
    start_at_the_gate(&home, &gate);
    let create = ["create", "second", "--template", "slow", "-y", "--no-wait"];
    let mut create = Process::start(&home, &create, "create.log");
    assert!(create.end().success(), "{}", create.log());
    create.wait_for_log("Not waiting for the plan: The one daemon that can run the job is busy (1 slot)");
    create.wait_for_log("Workspace \"second\" is starting in the background.");
    // Only the build waits.
    let waiting = json(&home, &["provisioner", "jobs", "list", "--status", "pending"]);
    let kinds: Vec<_> = waiting.as_array().unwrap().iter().map(|job| job["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["workspace_build"]);
    std::fs::write(&gate, "").unwrap();
    daemon.signal("TERM");
    assert_eq!(daemon.end().code(), Some(0), "{}", daemon.log());
}

/// Makes a workspace whose build goes on until the file `gate` exists, and returns while it does.
fn start_at_the_gate(home: &Home, gate: &Path) {
    let wait = format!("echo at the gate; while [ ! -e {} ]; do sleep 0.05; done", gate.display());
    let text = format!(
        "resource \"terraform_data\" \"x\" {{\n  provisioner \"local-exec\" {{\n    command = \"{wait}\"\n  }}\n}}\n"
    );
    let directory = write(home, "slow", &text);
    home.run(&["templates", "push", "-y", "-d", &directory]).success();
    home.run(&["create", "w", "--template", "slow", "-y", "--no-wait"]).success();
    let at_the_gate = |text: &str| text.contains("(local-exec)") && text.contains("at the gate");
    let started = until(WAIT_LIMIT, || at_the_gate(&home.run(&["logs", "w"]).success().out).then_some(()));
    assert!(started.is_some(), "{}", home.run(&["logs", "w"]).success().out);
}

#[test]
fn a_stopped_daemon_finishes_its_job() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "draining", &[]);
    let gate = home.path().join("gate");
    start_at_the_gate(&home, &gate);
    daemon.signal("TERM");
    daemon.wait_for_log("attempting graceful shutdown");
    std::fs::write(gate, "").unwrap();
    assert!(daemon.end().success());
    let outcome = home.run(&["logs", "-f", "w"]).success();
    assert!(outcome.out.contains("terraform_data"), "{}", outcome.out);
    assert_eq!(json(&home, &["list"])[0]["latest_build"]["status"], "running");
}

/// Programs only, with the clock of the machine: a workspace stops at the end of its time to live, and starts at the minute
/// of its schedule.
#[test]
fn a_workspace_left_to_itself_stops_and_starts() {
    coder_requirements::require!(Terraform);
    let server = Server::start(&["--allow-workspace-renames", "--provisioner-daemons=1"]);
    let home = server.first_user();
    let directory = write(&home, "empty", "resource \"terraform_data\" \"x\" {}\n");
    home.run(&["templates", "push", "empty", "-y", "-d", &directory, "--ignore-lockfile"]).success();
    let edit = [
        "templates",
        "edit",
        "empty",
        "--default-ttl",
        "2s",
        "--failure-ttl",
        "1h",
        "--activity-bump",
        "30m",
        "-y",
    ];
    let edited = home.run(&edit).success();
    assert!(!edited.err.contains("WARN"), "{}", edited.err);
    let create = ["create", "own", "-t", "empty", "-y", "--start-at", "9:30AM Mon-Fri Europe/Dublin"];
    home.run(&create).success();
    let build = || json(&home, &["show", "own"])["latest_build"].clone();
    let is = |status: &str, reason: &str| {
        let build = build();
        (build["status"] == status && build["reason"] == reason).then_some(build)
    };
    let stopped = until(WAIT_LIMIT, || is("stopped", "autostop")).unwrap();
    assert_eq!(
        (&stopped["build_number"], &stopped["initiator_name"]),
        (&serde_json::json!(2), &"admin".into())
    );

    home.run(&["schedule", "stop", "own", "manual"]).success();
    let shown = home.run(&["schedule", "show", "own"]).success().out;
    assert!(shown.contains("9:30AM Mon-Fri (Europe/Dublin)") && !shown.contains("2s"), "{shown}");
    home.run(&["schedule", "start", "own", "9:30", "someday"]).refused("days of the week");
    let next = SystemClock.now().to_zoned(jiff::tz::TimeZone::UTC);
    let next = next.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    home.run(&["schedule", "start", "own", &next.strftime("%H:%M").to_string(), "UTC"]).success();
    let started = until(std::time::Duration::from_secs(120), || is("running", "autostart")).unwrap();
    let at: coder_domain::Timestamp = started["created_at"].as_str().unwrap().parse().unwrap();
    let late = at.as_second() - next.timestamp().as_second() / 60 * 60;
    assert!((0..30).contains(&late), "it started {late} s behind its minute");

    home.run(&["schedule", "extend", "own", "1h"]).refused("shutdown is manual");
    home.run(&["schedule", "stop", "own", "90"]).success();
    let rows = json(&home, &["schedule", "show"]);
    assert_eq!((&rows[0]["workspace"], &rows[0]["stops_after"]), (&"admin/own".into(), &"1h30m".into()));
    home.run(&["autoupdate", "own", "always"]).success();
    home.run(&["favorite", "own"]).success();
    home.run(&["rename", "own", "other", "-y"]).success();
    let renamed = json(&home, &["show", "other"]);
    assert_eq!((&renamed["favorite"], &renamed["automatic_updates"]), (&true.into(), &"always".into()));
    home.run(&["unfavorite", "other"]).success();
    let same = home.run(&["update", "other", "-y"]).success();
    assert!(same.err.contains("up to date"), "{}", same.err);
    home.run(&["templates", "push", "empty", "-y", "-d", &directory, "--ignore-lockfile"]).success();
    home.run(&["update", "other", "-y"]).success();
    let updated = json(&home, &["show", "other"]);
    assert_eq!(
        (&updated["outdated"], &updated["latest_build"]["status"]),
        (&false.into(), &"running".into())
    );
    let deadline = updated["latest_build"]["deadline"].as_str().unwrap().to_owned();
    home.run(&["schedule", "extend", "other", "3h"]).success();
    assert_ne!(json(&home, &["show", "other"])["latest_build"]["deadline"], deadline);
    home.run(&["schedule", "extend", "other", "10m"]).refused("at least 30 minutes");
}
