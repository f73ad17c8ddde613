//! Connections through the agent: SSH forwards in both directions, and the ports of the overlay network.

use std::net::Ipv4Addr;

use coder_wire::messages::coder::agent::v2 as messages;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener, UnixStream};

use super::rig::{LONG, Running, Server, run};
use super::ssh_rig::{Ssh, echo, local};

/// Sends bytes to something that sends them back, ends our direction, and reads the rest.
async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, size: usize) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    let data: Vec<u8> = (0..size).map(|number| (number % 251) as u8).collect();
    let send = async {
        writer.write_all(&data).await.unwrap();
        writer.shutdown().await.unwrap();
    };
    let mut got = Vec::new();
    let both = async { tokio::join!(send, reader.read_to_end(&mut got)) };
    tokio::time::timeout(LONG, both).await.expect("everything comes back").1.unwrap();
    assert!(got == data, "{} of {size} bytes came back", got.len());
}

/// Sends back what arrives on a channel or stream.
async fn echo_on(stream: impl AsyncRead + AsyncWrite + Unpin) {
    let (mut reader, mut writer) = tokio::io::split(stream);
    tokio::io::copy(&mut reader, &mut writer).await.unwrap();
    writer.shutdown().await.unwrap();
}

#[test]
fn local_forwards_reach_ports_and_sockets() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let port = echo().await;
        for size in [100, 3_000_000] {
            let channel =
                ssh.handle.channel_open_direct_tcpip("localhost", port.into(), "127.0.0.1", 1).await.unwrap();
            exchange(channel.into_stream(), size).await;
        }
        let path = agent.path("socket");
        let listener = UnixListener::bind(&path).unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            echo_on(stream).await;
        });
        let channel = ssh.handle.channel_open_direct_streamlocal(path.to_str().unwrap()).await.unwrap();
        exchange(channel.into_stream(), 100).await;
        // Nothing listens there.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
        assert!(
            ssh.handle.channel_open_direct_tcpip("127.0.0.1", free.into(), "127.0.0.1", 1).await.is_err()
        );
        assert!(ssh.handle.channel_open_direct_streamlocal("/nonexistent").await.is_err());
        agent.end().await;
    });
}

#[test]
fn remote_forwards_come_back_to_the_client() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let port = ssh.handle.tcpip_forward("127.0.0.1", 0).await.unwrap();
        let port = u16::try_from(port).unwrap();
        assert!(port > 0);
        let stream = local(port).await;
        let channel = ssh.offered.next().await;
        tokio::spawn(echo_on(channel.into_stream()));
        exchange(stream, 100).await;
        ssh.handle.cancel_tcpip_forward("127.0.0.1", port.into()).await.unwrap();
        let gone = async {
            while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, gone).await.expect("the port is closed");
        // An old socket is replaced, its directory made.
        let path = agent.path("run/deep/forwarded");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        ssh.handle.streamlocal_forward(path.to_str().unwrap()).await.unwrap();
        ssh.handle.streamlocal_forward(path.to_str().unwrap()).await.unwrap();
        let stream = UnixStream::connect(&path).await.unwrap();
        let channel = ssh.offered.next().await;
        tokio::spawn(echo_on(channel.into_stream()));
        exchange(stream, 100).await;
        // A file that is not a socket is never removed.
        let file = agent.path("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(ssh.handle.streamlocal_forward(file.to_str().unwrap()).await.is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
        drop(ssh);
        let removed = async {
            while path.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, removed).await.expect("the socket goes with its connection");
        agent.end().await;
    });
}

#[test]
fn ssh_agent_of_the_client_is_reached() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let ssh = Ssh::connect(&user, 1).await;
        let mut channel = ssh.session().await;
        channel.agent_forward(true).await.unwrap();
        channel.exec(true, "echo socket=$SSH_AUTH_SOCK; cat").await.unwrap();
        let text = super::ssh_rig::read_until(&mut channel, "\n").await;
        let path = std::path::PathBuf::from(text.trim().strip_prefix("socket=").unwrap());
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the user may enter");
        let stream = UnixStream::connect(&path).await.unwrap();
        let offered = ssh.offered.next().await;
        tokio::spawn(echo_on(offered.into_stream()));
        exchange(stream, 100).await;
        channel.eof().await.unwrap();
        super::ssh_rig::collect(channel).await;
        let removed = async {
            while path.exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(LONG, removed).await.expect("the socket goes with its session");
        agent.end().await;
    });
}

/// agent 3.8.
#[test]
fn other_ports_are_those_of_the_workspace() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let port = echo().await;
        exchange(user.connect(port).await.unwrap(), 2_000_000).await;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap().port();
        assert!(user.connect(free).await.is_err(), "a closed port refuses");
        agent.end().await;
    });
}

#[test]
fn half_closed_connections_go_on_both_ways() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The service ends its direction first and then reads.
        let service = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"all I say").await.unwrap();
            stream.shutdown().await.unwrap();
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await.unwrap();
            got
        });
        let mut stream = user.connect(port).await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"all I say");
        stream.write_all(b"answer").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(service.await.unwrap(), b"answer");
        agent.end().await;
    });
}

#[test]
fn service_that_breaks_is_seen_to_break() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            // Unread bytes make it a reset.
            stream.peek(&mut [0]).await.unwrap();
            drop(stream);
        });
        let mut stream = user.connect(port).await.unwrap();
        stream.write_all(&[0; 10_000]).await.unwrap();
        let mut got = Vec::new();
        let ended = tokio::time::timeout(LONG, stream.read_to_end(&mut got)).await.expect("it ends");
        assert!(ended.is_err(), "an orderly end would say that all is well");
        agent.end().await;
    });
}

#[test]
fn datagrams_go_to_the_workspace_and_back() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let service = tokio::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = service.local_addr().unwrap().port();
        tokio::spawn(async move {
            let mut buffer = [0; 2000];
            while let Ok((count, from)) = service.recv_from(&mut buffer).await {
                buffer[..count].reverse();
                service.send_to(&buffer[..count], from).await.unwrap();
            }
        });
        let mut socket = user.node.bind_udp(5000).unwrap();
        let to = std::net::SocketAddrV6::new(coder_tailnet::address::of(super::rig::AGENT), port, 0, 0);
        let from = std::net::SocketAddrV6::new(user.node.source_for(*to.ip()).unwrap(), 5000, 0, 0);
        socket.send(from, to, b"abc").unwrap();
        let answer = tokio::time::timeout(LONG, socket.recv()).await.expect("an answer").unwrap();
        assert_eq!((answer.source, &answer.text[..]), (to, &b"cba"[..]));
        agent.end().await;
    });
}

#[test]
fn http_api_lists_ports_and_refuses_the_rest() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let get = async |path: &str| {
            let mut stream = user.connect(4).await.unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = get("/api/v0/listening-ports").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(r#"{"ports":["#), "{answer}");
        assert!(get("/api/v0/containers").await.starts_with("HTTP/1.1 403"));
        assert!(get("/debug/logs").await.starts_with("HTTP/1.1 404"));
        assert!(get("/nothing").await.starts_with("HTTP/1.1 404"));
        agent.end().await;
    });
}

#[test]
fn speed_test_sends_and_refuses_other_versions() {
    run(async {
        let server = Server::new(messages::Manifest::default());
        let agent = Running::start(&server);
        let user = server.user().await;
        let mut stream = user.connect(3).await.unwrap();
        stream.write_all(b"{\"version\":2,\"time\":200000000,\"direction\":0}\n").await.unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await.unwrap();
        assert!(got.starts_with(b"{}\n") && got.len() > 100_000, "{}", got.len());
        let mut stream = user.connect(3).await.unwrap();
        stream.write_all(b"{\"version\":1,\"time\":200000000,\"direction\":0}\n").await.unwrap();
        let mut got = String::new();
        stream.read_to_string(&mut got).await.unwrap();
        assert!(got.contains("only version 2"), "{got}");
        agent.end().await;
    });
}
