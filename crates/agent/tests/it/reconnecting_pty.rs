//! The reconnecting terminal.

use coder_tailnet::node::TcpStream;
use coder_wire::messages::coder::agent::v2 as messages;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::rig::{Client, LONG, Running, Server, run};

async fn open(user: &Client, id: Uuid, command: &str) -> TcpStream {
    let opening = format!(
        r#"{{"ID":"{id}","Height":30,"Width":100,"Command":"{command}","Container":"","ContainerUser":"","BackendType":""}}"#
    );
    let mut stream = user.connect(2).await.unwrap();
    stream.write_all(&u16::try_from(opening.len()).unwrap().to_le_bytes()).await.unwrap();
    stream.write_all(opening.as_bytes()).await.unwrap();
    stream
}

async fn send(stream: &mut TcpStream, data: &str) {
    let object = format!(r#"{{"data":{data:?}}}"#);
    stream.write_all(object.as_bytes()).await.unwrap();
}

async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut got = Vec::new();
    let read = async {
        // The end is looked at: the whole may be long.
        while !String::from_utf8_lossy(&got[got.len().saturating_sub(8192)..]).contains(wanted) {
            let mut buffer = [0; 4096];
            match stream.read(&mut buffer).await {
                Ok(count @ 1..) => got.extend_from_slice(&buffer[..count]),
                _ => break,
            }
        }
    };
    let _ = tokio::time::timeout(LONG, read).await;
    let text = String::from_utf8_lossy(&got).into_owned();
    assert!(text.contains(wanted), "{wanted:?} is not in {text:?}");
    text
}

/// agent 5.
#[test]
fn terminal_is_shared_replayed_and_ended_by_its_shell() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let id = Uuid::from_u128(5);
        let (mut first, mut second) = (open(&user, id, "").await, open(&user, id, "").await);
        send(&mut first, "echo one$((1+1)) \u{e9}\r").await;
        read_until(&mut first, "one2 \u{e9}").await;
        read_until(&mut second, "one2 \u{e9}").await;
        // Both may type.
        send(&mut second, "echo two$((1+1))\r").await;
        read_until(&mut first, "two2").await;
        drop((first, second));
        let mut third = open(&user, id, "").await;
        let replay = read_until(&mut third, "two2").await;
        assert!(replay.contains("one2"), "{replay:?}");
        third.write_all(br#"{"height":22,"width":77}{"data":"stty size\r"}"#).await.unwrap();
        read_until(&mut third, "22 77").await;
        send(&mut third, "exit\r").await;
        let mut rest = Vec::new();
        tokio::time::timeout(LONG, third.read_to_end(&mut rest)).await.expect("exit closes").unwrap();
        // The next one is a new shell.
        let mut fourth = open(&user, id, "").await;
        send(&mut fourth, "echo fresh$((1+1))\r").await;
        let text = read_until(&mut fourth, "fresh2").await;
        assert!(!text.contains("one2"), "{text:?}");
        agent.end().await;
    });
}

#[test]
fn output_of_a_command_arrives_before_the_end() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        for round in 0..5 {
            let mut stream = open(&user, Uuid::from_u128(100 + round), "echo $TERM; seq 1 5000").await;
            let mut got = String::new();
            tokio::time::timeout(LONG, stream.read_to_string(&mut got)).await.expect("it ends").unwrap();
            assert!(got.starts_with("xterm-256color\r\n1\r\n") && got.ends_with("\r\n5000\r\n"), "{got:?}");
        }
        agent.end().await;
    });
}

#[test]
fn failure_to_open_a_terminal_is_shown_in_it() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start_with(&server, |config| config.user.shell = "/nonexistent/shell".into());
        let user = server.user().await;
        let mut stream = open(&user, Uuid::from_u128(1), "").await;
        read_until(&mut stream, "the terminal could not be started").await;
        let opening = r#"{"ID":"5d0a3a52-7a1c-4c0f-9a83-2f9d8d1e6b10","Container":"c"}"#;
        let mut stream = user.connect(2).await.unwrap();
        stream.write_all(&u16::try_from(opening.len()).unwrap().to_le_bytes()).await.unwrap();
        stream.write_all(opening.as_bytes()).await.unwrap();
        read_until(&mut stream, "cannot enter containers").await;
        agent.end().await;
    });
}

#[test]
fn client_that_does_not_read_does_not_stop_the_others() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let id = Uuid::from_u128(9);
        let _stalled = open(&user, id, "").await;
        let mut reader = open(&user, id, "").await;
        send(&mut reader, "head -c 8000000 /dev/zero | tr '\\0' x; echo EN''D\r").await;
        read_until(&mut reader, "END").await;
        agent.end().await;
    });
}
