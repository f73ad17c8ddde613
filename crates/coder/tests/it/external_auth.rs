//! External authentication from the template to the workspace: the build gets a token, and no user can see it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use crate::end_to_end::write;
use crate::processes::{Process, Server};
use crate::program::Home;

const TOKEN: &str = "gho_hard_to_guess_4711";
const SHA256: &str = "e177ed7aae38ece357e4460feb87ab4e055db3952672c48104ff035501b2e48a";

/// It prints a hash of the token, which is allowed, and the token itself, which must be masked.
const TEMPLATE: &str = r#"
terraform {
  required_providers {
    coder = { source = "coder/coder" }
  }
}
data "coder_external_auth" "corp" {
  id = "corp"
}
resource "terraform_data" "home" {
  provisioner "local-exec" {
    command = "echo got ${nonsensitive(data.coder_external_auth.corp.access_token)} as a token"
  }
}
resource "coder_metadata" "home" {
  resource_id = terraform_data.home.id
  item {
    key   = "sum"
    value = nonsensitive(sha256(data.coder_external_auth.corp.access_token))
  }
}
"#;

/// Reads one HTTP message with a declared length.
fn read(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let count = stream.read(&mut chunk).unwrap();
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            assert!(count > 0, "cut short: {text}");
            continue;
        };
        let length =
            head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if count == 0 || length.is_some_and(|length: usize| body.len() >= length) {
            return text;
        }
    }
}

/// Starts a provider that gives every client the same token. Returns its address.
fn provider() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let request = read(&mut stream);
            let right = request.starts_with("POST /token ") && request.contains("client_secret=hunter2");
            let body = if right { format!("{{\"access_token\":\"{TOKEN}\"}}") } else { "{}".to_owned() };
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
    });
    format!("http://{address}")
}

/// Sends the request of a browser with these cookies. Returns head and body of the response.
fn get(server: &Server, path: &str, cookies: &str) -> String {
    let host = server.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\ncookie: {cookies}\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_build_gets_a_token_that_no_output_shows() {
    coder_requirements::require!(Terraform);
    let at = provider();
    let mut home = Home::new();
    for (field, value) in [
        ("ID", "corp".to_owned()),
        ("CLIENT_ID", "us".to_owned()),
        ("CLIENT_SECRET", "hunter2".to_owned()),
        ("AUTH_URL", format!("{at}/authorize")),
        ("TOKEN_URL", format!("{at}/token")),
    ] {
        home.set(&format!("CODER_EXTERNAL_AUTH_0_{field}"), value);
    }
    let server = Server::in_home(home, "127.0.0.1:0", &["--provisioner-daemons=1"]);
    let home = server.first_user();
    let template = write(&home, "accounts", TEMPLATE);
    home.run(&["templates", "push", "accounts", "-d", &template, "-y"]).success();

    let mut create = Process::start(&home, &["create", "mine", "--template", "accounts", "-y"], "create.log");
    create.wait_for_log(&format!("{}/external-auth/corp", server.url));
    let session = home.run(&["tokens", "create"]).success().out;
    let session = format!("coder_session_token={}", session.trim());
    let there = get(&server, "/external-auth/corp", &session);
    let location = there.lines().find_map(|line| line.strip_prefix("location: ")).unwrap();
    assert!(location.starts_with(&format!("{at}/authorize?")), "{location}");
    let state = location.split('&').find_map(|pair| pair.strip_prefix("state=")).unwrap();
    let set = there.lines().filter_map(|line| line.strip_prefix("set-cookie: ")?.split(';').next());
    let cookies: Vec<_> = set.chain([session.as_str()]).collect();
    let path = format!("/external-auth/corp/callback?code=c-1&state={state}");
    let back = get(&server, &path, &cookies.join("; "));
    assert!(back.starts_with("HTTP/1.1 303"), "{back}");
    assert!(create.end().success(), "{}", create.log());

    let workspace = get(&server, "/api/v2/users/me/workspace/mine", &session);
    assert!(workspace.contains(SHA256), "{workspace}");
    let (log, told) = (create.log(), get(&server, "/api/v2/external-auth", &session));
    assert!(log.contains("got ") && log.contains(" as a token"), "{log}");
    for shown in [&log, &server.process.log(), &told, &workspace, &there, &back] {
        assert!(!shown.contains(TOKEN) && !shown.contains("hunter2"), "{shown}");
    }
    let (_, build) = workspace.split_once("\"latest_build\":{\"id\":\"").unwrap();
    let logs =
        get(&server, &format!("/api/v2/workspacebuilds/{}/logs", build.split('"').next().unwrap()), &session);
    assert!(logs.contains(" as a token") && !logs.contains(TOKEN), "{logs}");
}

#[test]
fn a_provider_that_is_set_wrongly_stops_the_server_at_its_start() {
    let mut home = Home::new();
    home.set("CODER_EXTERNAL_AUTH_0_TYPE", "github").set("CODER_EXTERNAL_AUTH_0_CLIENT_SECRET", "hunter2");
    let refused = home.run(&["server", "--http-address=127.0.0.1:0"]);
    assert!(!refused.status.success());
    let said = refused.err;
    assert!(
        said.contains("CODER_EXTERNAL_AUTH_0_CLIENT_ID is missing") && !said.contains("hunter2"),
        "{said}"
    );
}
