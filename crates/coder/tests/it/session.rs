//! The session files of a login, and what takes precedence over them.

use std::os::unix::fs::PermissionsExt as _;

use crate::processes::{EMAIL, PASSWORD, Server, USER};
use crate::program::Home;

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_log_in_leaves_two_private_files_without_line_ends() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let config = home.config();
    assert_eq!(std::fs::read_to_string(config.join("url")).unwrap(), server.url);
    let token = std::fs::read_to_string(config.join("session")).unwrap();
    assert_eq!(token.len(), 33);
    assert_eq!(mode(&config.join("url")), 0o600);
    assert_eq!(mode(&config.join("session")), 0o600);
    assert_eq!(mode(&config) & 0o777, 0o750);
    assert!(home.run(&["whoami"]).success().out.contains(USER));
}

#[test]
fn flags_beat_variables_and_variables_beat_files() {
    let server = Server::start(&[]);
    let mut home = server.first_user();
    let token = std::fs::read_to_string(home.config().join("session")).unwrap();
    home.set("CODER_URL", "http://127.0.0.1:1");
    home.run(&["whoami"]).refused("127.0.0.1:1");
    home.run(&["whoami", "--url", &server.url]).success();
    home.set("CODER_SESSION_TOKEN", "0123456789-0123456789012345678901");
    let expired = home
        .run(&["whoami", "--url", &server.url])
        .refused("does not accept the token in CODER_SESSION_TOKEN");
    assert!(expired.err.contains("hint: unset CODER_SESSION_TOKEN"), "{}", expired.err);
    home.run(&["whoami", "--url", &server.url, "--token", &token]).success();
}

#[test]
fn variables_alone_are_enough() {
    let server = Server::start(&[]);
    let token = std::fs::read_to_string(server.first_user().config().join("session")).unwrap();
    let mut home = Home::new();
    home.set("CODER_URL", format!("{}/", server.url)).set("CODER_SESSION_TOKEN", token);
    let json: serde_json::Value =
        serde_json::from_str(&home.run(&["whoami", "-o", "json"]).success().out).unwrap();
    assert_eq!(json[0]["username"], USER);
    assert_eq!(json[0]["url"], server.url);
    assert_eq!(json[0]["roles"], serde_json::json!({ "*": ["Owner"] }));
    assert_eq!(json[0]["organization_ids"].as_array().unwrap().len(), 1);
    let heads = |out: String| out.lines().next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(heads(home.run(&["whoami", "-o", "table"]).success().out), "URL USERNAME ID");
    assert!(!home.config().exists());
}

#[test]
fn later_log_ins() {
    let server = Server::start(&[]);
    let first = server.first_user();
    let token = first.run(&["tokens", "create", "--name", "ci"]).success().out;
    let token = token.trim();
    let session = |home: &Home| std::fs::read_to_string(home.config().join("session")).unwrap();

    // A given token creates a separate session by default.
    let home = Home::new();
    home.run(&["login", &server.url, "--token", token]).success();
    assert_ne!(session(&home), token);
    home.run(&["login", &server.url, "--token", token, "--use-token-as-session"]).success();
    assert_eq!(session(&home), token);

    // A pasted token is stored as it is.
    let home = Home::new();
    let outcome = home.answer(&["login", &server.url], &format!("{token}\n")).success();
    assert!(outcome.err.contains("/cli-auth"), "{}", outcome.err);
    assert_eq!(session(&home), token);

    let home = Home::new();
    home.run(&["login", &server.url]).refused("--token");
    home.answer(&["login", &server.url], "nonsense\n").refused("not valid");
    assert!(!home.config().exists());
}

#[test]
fn the_first_user_needs_all_answers() {
    let server = Server::start(&[]);
    let home = Home::new();
    home.run(&["login", &server.url]).refused("--first-user-username");
    home.run(&["login", &server.url, "--first-user-username", "bad name"])
        .refused("--first-user-username must consist of");
    let answers = format!("{USER}\n\n{EMAIL}\n{PASSWORD}\n");
    home.answer(&["login", &server.url], &answers).success();
    home.run(&["whoami"]).success();
}

#[test]
fn log_out_ends_the_session_and_removes_the_files() {
    let server = Server::start(&[]);
    let home = server.first_user();
    let token = std::fs::read_to_string(home.config().join("session")).unwrap();
    home.run(&["logout"]).refused("pass --yes");
    home.run(&["logout", "-y"]).success();
    assert!(!home.config().join("session").exists() && home.config().join("url").exists());
    home.run(&["whoami", "--url", &server.url, "--token", &token])
        .refused("does not accept the token of --token");
    // The server is known, so that no URL is needed to log in again.
    let again = home.answer(&["login"], &format!("{token}\n")).refused("not valid");
    assert!(again.err.contains(&format!("Logging in to {}", server.url)), "{}", again.err);
}
