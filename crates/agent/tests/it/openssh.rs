//! The programs of OpenSSH against the agent, through a bridge on loopback.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

use coder_requirements::require;
use coder_wire::messages::coder::agent::v2 as messages;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::rig::{Client, Running, Server, run};

/// A port of this machine that is the agent's SSH port.
async fn bridge(user: Arc<Client>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let user = Arc::clone(&user);
            tokio::spawn(async move {
                let mut far = user.connect(1).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
            });
        }
    });
    port
}

/// The options of `coder config-ssh`, and none of the user who runs the test.
fn options(port: u16) -> Vec<String> {
    let port = format!("Port={port}");
    let options = [
        port.as_str(),
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "ConnectTimeout=0",
        "IdentityAgent=none",
    ];
    let options = options.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]);
    ["-F".to_owned(), "/dev/null".to_owned()].into_iter().chain(options).collect()
}

async fn execute(program: &str, port: u16, arguments: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(options(port)).args(arguments).current_dir(directory).stdin(std::process::Stdio::null());
    command.kill_on_drop(true).output().await.unwrap()
}

fn check(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{output:?}");
    text
}

#[test]
fn ssh_runs_commands_and_a_terminal() {
    require!(OpenSsh);
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let port = bridge(Arc::new(server.user().await)).await;
        let folder = agent.path("");
        let output = execute("ssh", port, &["127.0.0.1", "echo $CODER_WORKSPACE_NAME"], &folder).await;
        assert_eq!(check(&output), "dev\n");
        assert_eq!(execute("ssh", port, &["127.0.0.1", "exit 42"], &folder).await.status.code(), Some(42));
        let output = execute("ssh", port, &["-tt", "127.0.0.1", "tty; exit 6"], &folder).await;
        assert_eq!(output.status.code(), Some(6));
        assert!(String::from_utf8_lossy(&output.stdout).starts_with("/dev/pts/"));
        agent.end().await;
    });
}

#[test]
fn sftp_and_scp_carry_files_both_ways() {
    require!(OpenSsh);
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let port = bridge(Arc::new(server.user().await)).await;
        let local = tempfile::tempdir().unwrap();
        let data: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 253) as u8).collect();
        std::fs::write(local.path().join("big"), &data).unwrap();
        check(&execute("scp", port, &["big", "127.0.0.1:copied"], local.path()).await);
        assert!(std::fs::read(agent.path("home/copied")).unwrap() == data);
        check(&execute("scp", port, &["127.0.0.1:copied", "back"], local.path()).await);
        assert!(std::fs::read(local.path().join("back")).unwrap() == data);
        std::fs::create_dir_all(local.path().join("tree/a/b")).unwrap();
        std::fs::write(local.path().join("tree/a/b/file"), "deep").unwrap();
        check(&execute("scp", port, &["-rp", "tree", "127.0.0.1:~/"], local.path()).await);
        assert_eq!(std::fs::read_to_string(agent.path("home/tree/a/b/file")).unwrap(), "deep");
        // The protocol before SFTP.
        let old = execute("scp", port, &["-O", "big", "127.0.0.1:old"], local.path()).await;
        if agent_has_scp() {
            check(&old);
            assert!(std::fs::read(agent.path("home/old")).unwrap() == data);
        }
        let batch = "pwd\nls -la\nmkdir new\nput big new/x\nchmod 600 new/x\nrename new/x new/y\nln -s new/y link\n\
                     ls -l link\nget link fetched\ndf\nrm new/y\nrmdir new\n";
        std::fs::write(local.path().join("batch"), batch).unwrap();
        let text = check(&execute("sftp", port, &["-b", "batch", "127.0.0.1"], local.path()).await);
        assert!(text.contains(agent.path("home").to_str().unwrap()), "{text}");
        assert!(std::fs::read(local.path().join("fetched")).unwrap() == data);
        assert_eq!(std::fs::read_link(agent.path("home/link")).unwrap(), Path::new("new/y"));
        assert!(!agent.path("home/new").exists());
        let missing = execute("scp", port, &["127.0.0.1:missing", "x"], local.path()).await;
        assert!(!missing.status.success());
        assert!(String::from_utf8_lossy(&missing.stderr).contains("No such file"), "{missing:?}");
        agent.end().await;
    });
}

fn agent_has_scp() -> bool {
    std::process::Command::new("sh").args(["-c", "command -v scp"]).output().unwrap().status.success()
}

#[test]
fn keys_are_agreed_on_again_in_mid_transfer() {
    require!(OpenSsh);
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let port = bridge(Arc::new(server.user().await)).await;
        let arguments = ["-o", "RekeyLimit=1M", "127.0.0.1", "head -c 20000000 /dev/zero"];
        let output = execute("ssh", port, &arguments, &agent.path("")).await;
        assert!(output.status.success() && output.stdout.len() == 20_000_000, "{}", output.stdout.len());
        agent.end().await;
    });
}
