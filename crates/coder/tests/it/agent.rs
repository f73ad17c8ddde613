//! `coder agent` as a process, and the commands inside a workspace.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coder_requirements::require;

use crate::program::{Home, finish};

/// Where nothing listens.
const UNREACHABLE_URL: &str = "http://127.0.0.1:1";

/// A server that answers each path with a JSON text, and what it was asked.
fn server(answers: &'static [(&'static str, &'static str)]) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let record = Arc::clone(&asked);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            record.lock().unwrap().push(head);
            let found = answers.iter().find(|(known, _)| *known == path);
            let (status, body) =
                found.map_or(("404 Not Found", r#"{"message":"no"}"#), |(_, body)| ("200 OK", body));
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    (url, asked)
}

fn workspace(url: &str) -> Home {
    let mut home = Home::new();
    home.set("CODER_AGENT_URL", url).set("CODER_AGENT_TOKEN", "the-agent-token");
    home
}

#[test]
fn agent_that_cannot_start_says_what_is_missing() {
    let home = Home::new();
    home.run(&["agent", "--agent-url", UNREACHABLE_URL]).refused("CODER_AGENT_TOKEN");
    home.run(&["agent", "--agent-token", "t"]).refused("CODER_AGENT_URL");
    home.run(&["agent", "--agent-token-file", "missing", "--agent-url", UNREACHABLE_URL])
        .refused("read the agent token from missing");
    let refused = home.run(&["agent", "--auth", "aws-instance-identity"]).refused("aws-instance-identity");
    assert!(refused.err.contains("CODER_AGENT_TOKEN"), "{}", refused.err);
    home.run(&["stat", "disk", "--path", "/nonexistent"]).refused("look up /nonexistent");
}

#[test]
fn agent_waits_for_its_server_and_ends_with_a_signal() {
    let mut home = workspace(UNREACHABLE_URL);
    home.set("CODER_AGENT_LOG_DIR", home.path().join("log").to_str().unwrap());
    home.set("CODER_AGENT_DEVCONTAINERS_ENABLE", "true").set("CODER_AGENT_PPROF_ADDRESS", "");
    let mut child = home.command(&["agent"]).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let log = home.path().join("log/coder-agent.log");
    let deadline = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.contains("no connection to the server") {
            break text;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::yield_now();
    };
    assert!(text.contains("devcontainers-enable") && !text.contains("pprof"), "{text}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let mut shown = String::new();
    child.stderr.take().unwrap().read_to_string(&mut shown).unwrap();
    let kept = std::fs::read_to_string(&log).unwrap();
    assert!(!shown.contains("the-agent-token") && !kept.contains("the-agent-token"));
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o077, 0);
}

#[test]
fn process_1_hands_signals_on_and_ends_with_its_agent() {
    require!(Namespaces);
    let home = workspace(UNREACHABLE_URL);
    let binary = crate::program::binary();
    let command = home.command(&[]);
    let mut unshare = std::process::Command::new("unshare");
    unshare.args(["--pid", "--fork", "--mount-proc", "--kill-child", &binary, "agent", "--log-dir", "log"]);
    unshare.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshare.current_dir(home.path()).stderr(Stdio::null()).stdin(Stdio::null());
    let mut child = unshare.spawn().unwrap();
    let children = |pid: u32| -> Vec<u32> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        text.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    let log = home.path().join("log/coder-agent.log");
    let first = loop {
        let found = children(child.id()).first().copied();
        let is_up =
            std::fs::read_to_string(&log).is_ok_and(|text| text.contains("no connection to the server"));
        if let Some(first) = found
            && is_up
        {
            break first;
        }
        if let Ok(Some(status)) = child.try_wait() {
            // Without root, or in a container that permits less than the probe needs.
            eprintln!("unshare ended: {status}");
            return;
        }
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    };
    let agents = children(first);
    assert_eq!(agents.len(), 1, "process 1 has the agent as its child");
    let arguments = std::fs::read_to_string(format!("/proc/{}/cmdline", agents[0])).unwrap();
    assert!(arguments.contains("--no-reap"), "{arguments:?}");
    let pid = rustix::process::Pid::from_raw(i32::try_from(first).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(std::fs::read_to_string(&log).unwrap().contains("the agent ends"));
}

#[test]
fn tokens_of_external_services_are_printed() {
    let (url, asked) = server(&[
        (
            "/api/v2/workspaceagents/me/external-auth?id=github",
            r#"{"access_token":"gh-token","token_extra":{"a":{"b":"c"}}}"#,
        ),
        (
            "/api/v2/workspaceagents/me/external-auth?id=gitlab",
            r#"{"url":"https://coder/external-auth/gitlab"}"#,
        ),
        (
            "/api/v2/workspaceagents/me/external-auth?match=https%3A%2F%2Fgithub.com",
            r#"{"access_token":"gh-token","username":"oauth2","password":"gh-password"}"#,
        ),
    ]);
    let home = workspace(&url);
    let out = |args: &[&str]| home.run(args).success().out;
    assert_eq!(out(&["external-auth", "access-token", "github"]), "gh-token\n");
    assert_eq!(out(&["external-auth", "access-token", "github", "--extra", "a.b"]), "c\n");
    let outcome = home.run(&["external-auth", "access-token", "gitlab"]);
    assert_eq!(
        (outcome.status.code(), outcome.out.as_str()),
        (Some(1), "https://coder/external-auth/gitlab\n")
    );
    // Git asks.
    assert_eq!(out(&["Username for 'https://github.com': "]), "oauth2\n");
    assert_eq!(out(&["Password for 'https://oauth2@github.com': "]), "gh-password\n");
    home.run(&["Username for 'https://example.com': "])
        .refused("no external authentication of this server is for https://example.com");
    let asked = asked.lock().unwrap();
    assert!(asked.iter().all(|head| head.to_lowercase().contains("coder-session-token: the-agent-token")));
}

#[test]
fn git_gets_the_owners_key_after_the_users_own() {
    let (url, _) = server(&[(
        "/api/v2/workspaceagents/me/gitsshkey",
        r#"{"public_key":"ssh-ed25519 A","private_key":"the private key\n"}"#,
    )]);
    let mut home = workspace(&url);
    let tools = home.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    let own = home.path().join("own");
    std::fs::write(&own, "own key").unwrap();
    // Shows what it was given; with -G it names the user's identities.
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = -G ]; then echo 'identityfile {}'; exit; fi\necho \"$1 $2 $3\"; cat \"$4\"; stat -c %a \"$4\"; \
         echo \"$4\" > used; shift 4; echo \"$@\"; exit 7\n",
        own.display()
    );
    let ssh = tools.join("ssh");
    std::fs::write(&ssh, text).unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    home.set("PATH", format!("{}:{}", tools.display(), std::env::var("PATH").unwrap()));
    let outcome = home.run(&["gitssh", "--", "-o", "SendEnv=X", "git@host", "git-upload-pack 'a'"]);
    assert_eq!(outcome.status.code(), Some(7), "{}", outcome.err);
    let want =
        format!("-i {} -i\nthe private key\n600\n-o SendEnv=X git@host git-upload-pack 'a'\n", own.display());
    assert_eq!(outcome.out, want);
    let used = std::fs::read_to_string(home.path().join("used")).unwrap();
    assert!(!std::path::Path::new(used.trim()).exists(), "the key is removed");
}

#[test]
fn use_of_the_machine_is_shown() {
    let home = Home::new();
    let text = home.run(&["stat", "mem"]).success().out;
    assert!(text.contains("GiB (") && text.contains('%'), "{text}");
    let disk = home.run(&["stat", "disk", "--prefix", "Mi", "-o", "json"]).success().out;
    let disk: serde_json::Value = serde_json::from_str(&disk).unwrap();
    assert_eq!(disk["unit"], "MiB");
    let all = home.run(&["stat", "-o", "json"]).success().out;
    let all: serde_json::Value = serde_json::from_str(&all).unwrap();
    assert!(all[0]["host_memory"]["total"].as_f64().unwrap() > 0.0, "{all}");
}

#[test]
fn dotfiles_are_cloned_and_linked() {
    require!(Git);
    let mut home = Home::new();
    home.set("GIT_CONFIG_GLOBAL", "/dev/null").set("GIT_CONFIG_SYSTEM", "/dev/null");
    let repository = home.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    std::fs::write(repository.join(".vimrc"), "set nocompatible\n").unwrap();
    let git = |args: &[&str]| {
        let mut command = std::process::Command::new("git");
        command
            .args(["-c", "user.name=a", "-c", "user.email=a@b", "-C", repository.to_str().unwrap()])
            .args(args);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        assert!(finish(command, b"").status.success());
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "first"]);
    let url = repository.to_str().unwrap();
    home.run(&["dotfiles", "-y", url]).success();
    let link = home.home().join(".vimrc");
    assert_eq!(std::fs::read_to_string(&link).unwrap(), "set nocompatible\n");
    let other = home.path().join("other").display().to_string();
    home.run(&["dotfiles", "-y", url, "--symlink-dir", &other]).success();
    let link = std::path::Path::new(&other).join(".vimrc");
    assert_eq!(std::fs::read_to_string(link).unwrap(), "set nocompatible\n");
    // A script is preferred to links.
    std::fs::write(repository.join("install.sh"), "#!/bin/sh\necho installed > $HOME/proof\n").unwrap();
    std::fs::set_permissions(repository.join("install.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    git(&["add", "."]);
    git(&["commit", "-q", "-m", "second"]);
    home.run(&["dotfiles", "-y", url]).success();
    assert_eq!(std::fs::read_to_string(home.home().join("proof")).unwrap(), "installed\n");
    home.run(&["dotfiles", url]).refused("--yes");
}

/// agent 1.4.
#[test]
fn agent_starts_again_when_its_prebuilt_workspace_is_claimed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = workspace(&format!("http://{}", listener.local_addr().unwrap()));
    std::thread::spawn(move || {
        let claim = "event: ping\n\nevent: data\ndata: {\"WorkspaceID\":\"5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10\",\"reason\":\"prebuild_claimed\"}\n\n";
        let mut is_claimed = false;
        while let Ok((mut stream, _)) = listener.accept() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let asks = String::from_utf8(head).unwrap().starts_with("GET /api/v2/workspaceagents/me/reinit");
            let answer = match (asks, is_claimed) {
                (true, false) => {
                    is_claimed = true;
                    let length = claim.len();
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{claim}"
                    )
                }
                (true, true) => "HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n".to_owned(),
                (false, _) => {
                    "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                        .to_owned()
                }
            };
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let mut child = home
        .command(&["agent", "--no-reap", "--log-dir", "log"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let log = home.path().join("log/coder-agent.log");
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut text = String::new();
    while !text.contains("the agent starts again") && Instant::now() < deadline {
        text = std::fs::read_to_string(&log).unwrap_or_default();
        std::thread::yield_now();
    }
    let is_running = child.try_wait().unwrap().is_none();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(is_running && text.contains("the agent starts again"), "{text}");
}
