//! The agent's real transport: WebSocket and relay over HTTP on loopback.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coder_agent::HttpTransport;
use coder_api::client::{Client, Options, Proxies};
use coder_domain::secret::Secret;
use coder_tailnet::derp::upgrade;
use coder_wire::messages::coder::agent::v2 as messages;
use coder_wire::ws::{Socket, handshake};
use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Running, Server, run};
use super::ssh_rig::Ssh;

/// The path and the headers of a request.
async fn read_request(stream: &mut TcpStream) -> Option<(String, HeaderMap)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    let headers =
        head.lines().skip(1).filter_map(|line| line.split_once(": ")).map(|(name, value)| {
            (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap())
        });
    Some((path, headers.collect()))
}

async fn answer(stream: &mut TcpStream, headers: &HeaderMap) {
    let mut answer = "HTTP/1.1 101 Switching Protocols\r\n".to_owned();
    for (name, value) in headers {
        answer.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    stream.write_all(format!("{answer}\r\n").as_bytes()).await.unwrap();
}

/// What a server was asked.
#[derive(Default)]
struct Asked {
    derp: AtomicUsize,
    websocket: AtomicUsize,
}

async fn serve(server: Server, listener: TcpListener, refuses_derp: bool, asked: Arc<Asked>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (server, asked) = (server.clone(), Arc::clone(&asked));
        tokio::spawn(async move {
            let Some((path, headers)) = read_request(&mut stream).await else { return };
            assert_eq!(headers["x-from-flag"], "yes", "further headers are sent everywhere on the server");
            if path == "/api/v2/workspaceagents/me/rpc?version=2.7" {
                assert_eq!(headers["cookie"], "coder_session_token=the-token");
                answer(&mut stream, &handshake::answer(&headers).unwrap()).await;
                server.serve(Box::new(Socket::server(stream)));
                return;
            }
            assert_eq!(path, "/derp");
            assert!(!headers.contains_key("cookie"), "the relay has no authentication");
            let (form, headers) = upgrade::answer(&headers, &server.relay_key()).unwrap();
            if form == upgrade::Form::Derp {
                asked.derp.fetch_add(1, Ordering::SeqCst);
                if refuses_derp {
                    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
                    return;
                }
            } else {
                asked.websocket.fetch_add(1, Ordering::SeqCst);
            }
            answer(&mut stream, &headers).await;
            server.serve_relay(upgrade::server_stream(form, stream)).await;
        });
    }
}

async fn reach(refuses_derp: bool) -> Arc<Asked> {
    let server = Server::new(messages::Manifest::default());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::<Asked>::default();
    let serving = tokio::spawn(serve(server.clone(), listener, refuses_derp, Arc::clone(&asked)));
    let options = Options {
        headers: vec![("X-From-Flag".to_owned(), Secret::new("yes"))],
        proxies: Proxies::none(),
        ..Options::default()
    };
    let client = Client::new(&url, Some(Secret::new("the-token")), options).unwrap();
    let agent = Running::start_over(Arc::new(HttpTransport::new(client)));
    let user = server.user().await;
    let ssh = Ssh::connect(&user, 1).await;
    assert_eq!(ssh.run("echo over http").await.text(), "over http\n");
    drop(ssh);
    agent.end().await;
    let states = server.records().states;
    assert_eq!(states.last(), Some(&messages::lifecycle::State::Off), "{states:?}");
    serving.abort();
    asked
}

#[test]
fn calls_and_relay_go_over_http() {
    run(async {
        let asked = reach(false).await;
        assert!(asked.derp.load(Ordering::SeqCst) >= 1);
        assert_eq!(asked.websocket.load(Ordering::SeqCst), 0);
    });
}

/// agent 3.5.
#[test]
fn relay_behind_a_proxy_is_reached_by_websocket() {
    run(async {
        let asked = reach(true).await;
        assert_eq!(asked.derp.load(Ordering::SeqCst), 1, "it is remembered");
        assert!(asked.websocket.load(Ordering::SeqCst) >= 1);
    });
}
