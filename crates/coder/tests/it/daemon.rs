//! A daemon as a process: how it joins, what it logs, how it ends.

use crate::processes::{Process, Server, WAIT_LIMIT};
use crate::program::{Home, finish, until};

fn stop(mut daemon: Process, signal: &str) {
    daemon.signal(signal);
    assert!(daemon.end().success(), "{}", daemon.log());
    assert!(daemon.log().contains("provisioner: closing provisionerd"), "{}", daemon.log());
}

/// A home that knows the server and has no session.
fn elsewhere(server: &Server) -> Home {
    let mut home = Home::new();
    home.set("CODER_URL", format!("{}/", server.url));
    home
}

fn key(home: &Home, flags: &[&str]) -> String {
    let args = [&["provisioner", "keys", "create", "k"], flags].concat();
    let out = home.run(&args).success().out;
    out.lines().last().unwrap().to_owned()
}

#[test]
fn joining_with_each_credential() {
    let server = Server::start(&["--provisioner-daemon-psk", "a-long-shared-secret"]);
    let home = server.first_user();

    let mut with_key = elsewhere(&server);
    with_key.set("CODER_PROVISIONER_DAEMON_KEY", key(&home, &["--tag", "zone=a"]));
    let by_key = server.daemon(&with_key, "by-key", &[]);

    let mut with_psk = elsewhere(&server);
    with_psk.set("CODER_PROVISIONER_DAEMON_PSK", "a-long-shared-secret");
    let by_psk = server.daemon(&with_psk, "by-psk", &["--tag", "zone=b"]);

    let by_session = server.daemon(&home, "by-session", &["-t", "zone=c", "-t", "scope=user"]);

    let mut with_token = elsewhere(&server);
    with_token.set("CODER_SESSION_TOKEN", home.run(&["tokens", "create"]).success().out.trim());
    let by_token = server.daemon(&with_token, "by-token", &[]);

    let json = home.run(&["provisioner", "list", "-o", "json"]).success().out;
    let daemons: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
    let find = |name: &str| daemons.iter().find(|daemon| daemon["name"] == name).unwrap();
    assert_eq!(find("by-key")["tags"]["zone"], "a");
    assert_eq!(find("by-key")["key_name"], "k");
    assert_eq!(find("by-psk")["tags"]["zone"], "b");
    assert_eq!(find("by-session")["tags"]["scope"], "user");
    assert_eq!(find("by-token")["tags"]["scope"], "organization");
    assert_eq!(find("by-token")["organization_name"], "coder");
    let table = home.run(&["provisioner", "list"]).success().out;
    assert!(table.starts_with("CREATED AT") && table.contains("idle"), "{table}");

    stop(by_key, "TERM");
    stop(by_psk, "HUP");
    stop(by_session, "INT");
    stop(by_token, "TERM");
}

#[test]
fn the_log_has_the_official_words() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let json = home.path().join("log.json");
    let daemon = server.daemon(&home, "words", &["--log-json", json.to_str().unwrap(), "--verbose"]);
    let log = daemon.log();
    let line = log.lines().find(|line| line.contains("successfully connected")).unwrap();
    let (at, rest) = line.split_at(23);
    assert!(at.starts_with("20") && at.as_bytes()[10] == b' ' && at.as_bytes()[19] == b'.', "{line}");
    assert!(rest.starts_with(" [info]  provisioner: successfully connected to coderd"), "{line}");
    let text = std::fs::read_to_string(json).unwrap();
    let entry = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let entry = entry.into_iter().find(|entry| entry["msg"] == "successfully connected to coderd").unwrap();
    assert_eq!(entry["level"], "INFO");
    assert_eq!(entry["logger_names"][0], "provisioner");
    stop(daemon, "TERM");
}

#[test]
fn refused_credentials_end_the_daemon_with_their_exit_code() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let secret = key(&home, &[]);
    let nowhere = elsewhere(&server);
    let start = |flags: &[&str]| nowhere.run(&[&["provisioner", "start"], flags].concat());
    let unknown = "x".repeat(43);
    // A supervisor must distinguish a wrong credential from an unavailable server.
    let turned_away = |flags: &[&str]| {
        let outcome = start(flags);
        assert_eq!(outcome.status.code(), Some(77), "{}", outcome.err);
        assert!(outcome.err.contains("hint: "), "{}", outcome.err);
        outcome.err
    };
    assert!(!turned_away(&["--key", &unknown]).contains(&unknown));
    home.run(&["provisioner", "keys", "delete", "k", "-y"]).success();
    let deleted = turned_away(&["--key", &secret]);
    let error = "error: the server does not accept the credential: the provisioner key was deleted";
    assert!(deleted.starts_with(error) && deleted.lines().count() == 2, "one error and one hint: {deleted}");
    turned_away(&["--key", "short"]);
    let other = "does not accept the credential: the pre-shared key is not that of the server";
    assert!(turned_away(&["--psk", "wrong"]).contains(other));
    let ended = turned_away(&["--token", "0123456789-0123456789012345678901"]);
    assert!(ended.contains("the session or token has expired or was ended"), "{ended}");
}

#[test]
fn a_daemon_survives_a_restart_of_its_server() {
    let mut server = Server::start(&[]);
    let home = server.first_user();
    let mut daemon = server.daemon(&home, "steady", &[]);
    let address = server.url.strip_prefix("http://").unwrap().to_owned();
    server.process.signal("TERM");
    server.process.end();
    daemon.wait_for_log("connection to coderd closed");
    let again = server.restart(&address);
    let joined =
        until(WAIT_LIMIT, || (daemon.log().matches("successfully connected").count() == 2).then_some(()));
    assert!(joined.is_some(), "{}", daemon.log());
    drop(again);
    stop(daemon, "TERM");
}

/// It would acquire jobs and fail each of them.
#[test]
fn a_daemon_without_a_cache_directory_does_not_join() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let file = home.path().join("file");
    std::fs::write(&file, "").unwrap();
    let cache = file.display().to_string();
    home.run(&["provisioner", "start", "--name", "lost", "--cache-dir", &cache])
        .refused("the daemon cannot run on this machine: ");
    home.run(&["provisioner", "start", "--name", "lost", "--cache-dir", &cache])
        .refused("/file/work cannot be used: Not a directory");
    let listed = home.run(&["provisioner", "list", "--show-offline"]).success().out;
    assert!(!listed.contains("lost"), "{listed}");
}

/// As in containers whose user is not in /etc/passwd.
#[test]
fn daemon_with_all_settings_needs_no_home() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let token = home.run(&["tokens", "create"]).success().out.trim().to_owned();
    let mut homeless = elsewhere(&server);
    homeless.set("CODER_SESSION_TOKEN", token);
    let command = |args: &[&str]| {
        let mut command = homeless.command(args);
        command.env_remove("HOME");
        command
    };
    finish(command(&["whoami"]), b"").success();
    finish(command(&["login", &server.url, "--use-token-as-session"]), b"")
        .refused("the home directory is not known");
    let cache = homeless.path().join("cache").display().to_string();
    let start = ["provisioner", "start", "--name", "homeless", "--cache-dir", &cache];
    let mut daemon = Process::spawn(&homeless, command(&start), "homeless.log");
    daemon.wait_for_log("successfully connected to coderd");
    stop(daemon, "TERM");
    finish(command(&start[..4]), b"")
        .refused("the home directory is not known: set HOME, or pass --cache-dir");
}

#[test]
fn a_missing_directory_for_temporary_files_is_logged() {
    let server = Server::start(&[]);
    let mut home = elsewhere(&server);
    home.set("CODER_SESSION_TOKEN", server.first_user().run(&["tokens", "create"]).success().out.trim());
    home.set("TMPDIR", "/nowhere/tmp");
    let mut daemon = server.daemon(&home, "tight", &[]);
    daemon.wait_for_log("providers cannot start: let TMPDIR name a directory");
    stop(daemon, "TERM");
}
