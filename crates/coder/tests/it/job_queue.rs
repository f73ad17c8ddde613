//! Why a job waits, as users see it; expiry, rotation and use of keys; draining; the server's metrics.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::processes::{Process, Server};
use crate::program::Home;

fn template(home: &Home) -> String {
    let folder = home.path().join("template");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("main.tf"), "").unwrap();
    folder.to_str().unwrap().to_owned()
}

#[test]
fn a_push_that_waits_says_why_and_so_does_the_list() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let folder = template(&home);
    let args = ["templates", "push", "t", "-d", &folder, "-y", "--provisioner-tag", "a=1"];
    let waiting =
        "waiting: No daemon has joined this organization. Start a daemon: coder provisioner start --tag a=1";
    let mut push = Process::start(&home, &args, "push.log");
    push.wait_for_log(waiting);
    let out = home.run(&["provisioner", "jobs", "list", "--explain"]).success().out;
    assert!(out.contains("\n  no_daemons: No daemon has joined this organization.\n"), "{out}");
    assert!(out.ends_with("    next: Start a daemon: coder provisioner start --tag a=1\n"), "{out}");
    let out = home.run(&["provisioner", "jobs", "list", "-e", "-o", "json"]).success().out;
    let jobs: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(jobs[0]["reasons"][0]["code"], "no_daemons");
    let plain = home.run(&["provisioner", "jobs", "list", "-o", "json"]).success().out;
    assert!(!plain.contains("reasons"), "{plain}");
    let job = jobs[0]["id"].as_str().unwrap();
    home.run(&["provisioner", "jobs", "cancel", job]).success();
    assert!(!push.end().success());
    let out = home.run(&["provisioner", "jobs", "list", "--explain"]).success().out;
    assert!(!out.contains("waits:"), "{out}");

    let mut push = Process::start(&home, &args, "again.log");
    push.wait_for_log(waiting);
    let out = home.run(&["provisioner", "jobs", "list", "-o", "json"]).success().out;
    let jobs: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (jobs.as_array().unwrap().len(), jobs[0]["id"].as_str()),
        (2, Some(job)),
        "the newest is last"
    );
    home.run(&["provisioner", "jobs", "cancel", jobs[1]["id"].as_str().unwrap()]).success();
    assert!(!push.end().success());
}

#[test]
fn keys_end_rotate_and_are_bound_to_networks() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let keys = |args: &[&str]| home.run(&[&["provisioner", "keys"], args].concat());
    keys(&["create", "k", "--expires-in", "24h", "--allow-address", "127.0.0.0/8,::1"]).success();
    let first = keys(&["list", "-o", "json"]).success().out;
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first[0]["allow_addresses"], serde_json::json!(["127.0.0.0/8", "::1"]));
    assert!(first[0]["expires_at"].is_string());
    let rotated = keys(&["rotate", "K", "--overlap", "90m"]).success().out;
    let lines: Vec<_> = rotated.lines().collect();
    assert_eq!((lines.len(), lines[1], lines[2].len()), (3, "", 43), "{rotated}");
    assert!(lines[0].contains("the old one is valid until "), "{rotated}");
    let out = keys(&["update", "k", "--never-expires", "--allow-everywhere"]).success().err;
    assert!(out.contains("\"k\" expires: never; it may be used from everywhere"), "{out}");
    let out = keys(&["update", "K", "--expires-in", "1h", "--allow-address", "127.0.0.0/8"]).success().err;
    assert!(out.contains("it may be used from 127.0.0.0/8"), "{out}");
    keys(&["update", "absent", "--never-expires"]).refused("there is no provisioner key \"absent\"");
    keys(&["update", "k"]).refused("--never-expires");
    keys(&["update", "k", "--never-expires", "--expires-in", "1h"]).refused("cannot be used with");
    let listed = keys(&["list", "-c", "name,expires at,last used at,previous valid until"]).success().out;
    assert!(listed.starts_with("NAME") && listed.lines().count() == 2, "{listed}");
    keys(&["create", "x", "--allow-address", "10.0.0.1/8"]).refused("write 10.0.0.0/8");
    keys(&["create", "x", "--expires-in", "0"]).refused("expires_in_seconds");
    keys(&["rotate", "absent"]).refused("there is no provisioner key \"absent\"");
    home.run(&["provisioner", "drain", "absent"]).refused("no daemon \"absent\" was seen lately");
}

#[test]
fn a_daemon_drains_from_afar_and_exits_well() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "far", &[]);
    let out = home.run(&["provisioner", "drain", "far"]).success();
    assert!(out.err.contains("takes no more jobs"), "{}", out.err);
    assert!(daemon.end().success(), "{}", daemon.log());
}

/// The server's metrics now.
fn scrape(server: &Server) -> String {
    let log = server.process.log();
    let address = log.lines().find_map(|line| line.split_once("Prometheus endpoint on http://")).unwrap().1;
    let mut stream = TcpStream::connect(address.trim()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn the_server_tells_prometheus() {
    let mut server = Server::start(&["--prometheus-enable", "--prometheus-address=127.0.0.1:0"]);
    server.process.wait_for_log("starting Prometheus endpoint on http://");
    let text = scrape(&server);
    assert!(text.starts_with("HTTP/1.1 200 OK") && text.contains("application/openmetrics-text"), "{text}");
    assert!(text.contains("coderd_provisioning_sessions 0"), "{text}");
    assert!(!text.contains("coderd_provisionerd_"), "it has no built-in daemons: {text}");
}

#[test]
fn the_server_tells_what_its_own_daemons_do() {
    let metrics = [
        "--prometheus-enable",
        "--prometheus-address=127.0.0.1:0",
        "--provisioner-daemons=2",
        "--cache-dir=cache",
    ];
    let mut server = Server::start(&metrics);
    server.process.wait_for_log("starting Prometheus endpoint on http://");
    let home = server.first_user();
    let folder = template(&home);
    home.run(&["templates", "push", "t", "-d", &folder, "-y"]).success();
    let text = scrape(&server);
    assert!(text.contains("coderd_provisionerd_num_daemons 2\n"), "{text}");
    let imports =
        "coderd_provisionerd_job_timings_seconds_count{provisioner=\"terraform\",status=\"success\"} 1\n";
    assert!(text.contains(imports), "{text}");
    assert_eq!(text.matches("# TYPE process_open_fds ").count(), 1, "{text}");
}
