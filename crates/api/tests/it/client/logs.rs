//! Following logs: order, keepalive, lost connections and the end.

use std::time::Duration;

use coder_api::client::{Client, Error, JobLogTarget, Options, Timeouts};
use coder_domain::ids::BuildId;
use coder_domain::secret::Secret;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::StatusCode;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Message, Role};

use super::server::{Server, accept, head};
use super::{TOKEN, client, options};

type Socket = WebSocketStream<TcpStream>;

fn line(id: i64) -> String {
    let start = r#""created_at":"2026-01-02T03:04:05.146Z","log_source":"provisioner","log_level":"info""#;
    format!("{{\"id\":{id},{start},\"stage\":\"s\",\"output\":\"line {id}\"}}\n")
}

fn close(code: CloseCode) -> Message {
    Message::Close(Some(CloseFrame { code, reason: "done".into() }))
}

/// A server that upgrades every connection, reports its head and hands the socket on.
async fn sockets<F>(
    handle: impl Fn(Socket, usize) -> F + Send + Sync + 'static,
) -> (Server, mpsc::Receiver<String>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, heads) = mpsc::channel(16);
    let handle = std::sync::Arc::new(handle);
    let server = Server::raw(move |mut stream, number| {
        let (sender, handle) = (sender.clone(), std::sync::Arc::clone(&handle));
        async move {
            let head = head(&mut stream).await;
            stream.write_all(accept(&head).as_bytes()).await.unwrap();
            sender.send(head).await.unwrap();
            let socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            handle(socket, number).await;
        }
    })
    .await;
    (server, heads)
}

fn build() -> JobLogTarget {
    JobLogTarget::Build(BuildId::NIL)
}

async fn ids(client: &Client, after: i64) -> Result<Vec<i64>, Error> {
    let lines = client.follow_job_logs(build(), after).collect().await?;
    Ok(lines.into_iter().map(|line| line.id).collect())
}

#[tokio::test]
async fn lines_come_in_order_until_the_server_is_done() {
    let (server, mut heads) = sockets(|mut socket, _| async move {
        for id in 1..=3 {
            socket.send(Message::text(line(id))).await.unwrap();
        }
        socket.send(close(CloseCode::Normal)).await.unwrap();
        let answer = socket.next().await;
        assert!(matches!(answer, Some(Ok(Message::Close(_)))), "the close is answered: {answer:?}");
    })
    .await;
    let mut logs = client(&server.url()).follow_job_logs(build(), 0);
    let first = logs.next().await.unwrap().unwrap();
    assert_eq!((first.id, first.output.as_str(), logs.position()), (1, "line 1", 1));
    assert_eq!(logs.collect().await.unwrap().len(), 2);
    let head = heads.recv().await.unwrap();
    assert!(head.starts_with(&format!("GET /api/v2/workspacebuilds/{}/logs?follow", BuildId::NIL)), "{head}");
    assert!(head.contains(&format!("cookie: coder_session_token={TOKEN}\r\n")), "{head}");
    assert!(!head.to_lowercase().contains("coder-session-token:"), "{head}");
}

#[tokio::test]
async fn pings_are_answered_and_fragments_joined() {
    let (server, _heads) = sockets(|mut socket, _| async move {
        socket.send(Message::Ping("x".into())).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), Message::Pong("x".into()));
        // The official server sends the text without the final bit, then an empty final continuation.
        socket.send(Message::Frame(Frame::message(line(1), OpCode::Data(Data::Text), false))).await.unwrap();
        socket.send(Message::Frame(Frame::message("", OpCode::Data(Data::Continue), true))).await.unwrap();
        socket.send(close(CloseCode::Normal)).await.unwrap();
        let _ = socket.next().await;
    })
    .await;
    assert_eq!(ids(&client(&server.url()), 0).await.unwrap(), [1]);
}

#[tokio::test]
async fn a_lost_connection_is_taken_up_after_the_last_line() {
    let (server, mut heads) = sockets(|mut socket, number| async move {
        match number {
            0 => {
                socket.send(Message::text(line(1))).await.unwrap();
                socket.send(Message::text(line(2))).await.unwrap();
                // No close frame: the process died.
            }
            1 => {
                socket.send(Message::text(line(2))).await.unwrap();
                socket.send(Message::text(line(5))).await.unwrap();
                socket.send(close(CloseCode::Away)).await.unwrap();
                let _ = socket.next().await;
            }
            _ => {
                socket.send(Message::text(line(6))).await.unwrap();
                socket.send(close(CloseCode::Normal)).await.unwrap();
                let _ = socket.next().await;
            }
        }
    })
    .await;
    assert_eq!(ids(&client(&server.url()), 0).await.unwrap(), [1, 2, 5, 6], "each line once");
    heads.recv().await.unwrap();
    assert!(heads.recv().await.unwrap().contains("/logs?after=2&follow"));
    assert!(heads.recv().await.unwrap().contains("/logs?after=5&follow"));
}

#[tokio::test]
async fn a_silent_connection_is_replaced() {
    let (server, _heads) = sockets(|mut socket, number| async move {
        if number == 0 {
            std::future::pending::<()>().await;
        }
        socket.send(close(CloseCode::Normal)).await.unwrap();
        let _ = socket.next().await;
    })
    .await;
    let timeouts = Timeouts { log_silence: Duration::from_millis(50), ..options().timeouts };
    let client = Client::new(&server.url(), None, Options { timeouts, ..options() }).unwrap();
    assert!(ids(&client, 0).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_server_that_stays_away_is_an_error_in_the_end() {
    let (server, mut heads) = sockets(|socket, _| async move { drop(socket) }).await;
    let timeouts = Timeouts { log_reconnect: Duration::from_millis(100), ..options().timeouts };
    let client = Client::new(&server.url(), None, Options { timeouts, ..options() }).unwrap();
    let mut logs = client.follow_job_logs(build(), 7);
    let error = logs.next().await.unwrap_err();
    assert!(error.is_retryable() || matches!(error, Error::Protocol { .. }), "{error:?}");
    assert!(logs.next().await.unwrap().is_none(), "over after an error");
    assert!(heads.recv().await.unwrap().contains("after=7"));
    assert!(heads.recv().await.is_some(), "it did try again");
}

#[tokio::test]
async fn a_refusal_is_final() {
    let server = Server::raw(|mut stream, _| async move {
        head(&mut stream).await;
        let answer = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        std::future::pending::<()>().await;
    })
    .await;
    let error = ids(&client(&server.url()), 0).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::UNAUTHORIZED));
    assert!(error.hint().unwrap().contains("coder login"));
}

#[tokio::test]
async fn nonsense_is_refused() {
    for message in [
        Message::text("not JSON"),
        Message::binary(line(1)),
        Message::text(format!("{{\"output\":\"{}\"}}", "x".repeat(2 << 20))),
    ] {
        let (server, _heads) = sockets(move |mut socket, _| {
            let message = message.clone();
            async move {
                // A message over the limit is not read to its end.
                let _ = socket.send(message).await;
                std::future::pending::<()>().await;
            }
        })
        .await;
        let error = ids(&client(&server.url()), 0).await.unwrap_err();
        assert!(matches!(error, Error::Decode { .. } | Error::Protocol { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn dropping_a_wait_loses_no_line() {
    let (sender, receiver) = mpsc::channel::<()>(1);
    let receiver = std::sync::Arc::new(tokio::sync::Mutex::new(receiver));
    let (server, _heads) = sockets(move |mut socket, _| {
        let receiver = std::sync::Arc::clone(&receiver);
        async move {
            receiver.lock().await.recv().await.unwrap();
            socket.send(Message::text(line(1))).await.unwrap();
            socket.send(close(CloseCode::Normal)).await.unwrap();
            let _ = socket.next().await;
        }
    })
    .await;
    let client = Client::new(&server.url(), Some(Secret::new(TOKEN)), options()).unwrap();
    let mut logs = client.follow_job_logs(build(), 0);
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_millis(20), logs.next()).await;
        assert!(waited.is_err());
    }
    sender.send(()).await.unwrap();
    assert_eq!(logs.next().await.unwrap().unwrap().id, 1);
    assert!(logs.next().await.unwrap().is_none());
}

#[tokio::test]
async fn cut_at_any_byte_every_line_still_comes_once() {
    // Three unmasked text frames and a close frame, as a server writes them.
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for id in 1..=3 {
        let text = line(id);
        bytes.extend([0x81, 126, 0, u8::try_from(text.len()).unwrap()]);
        bytes.extend(text.as_bytes());
        ends.push(bytes.len());
    }
    bytes.extend([0x88, 2, 0x03, 0xe8]);
    let whole = bytes.len();
    let cuts = (0..whole).step_by(7).chain(ends.clone()).chain([whole - 1]);
    let checks = cuts.map(|cut| {
        let (bytes, ends) = (bytes.clone(), ends.clone());
        async move {
            let server = cutting(bytes, ends, cut).await;
            assert_eq!(ids(&client(&server.url()), 0).await.unwrap(), [1, 2, 3], "cut after {cut} bytes");
        }
    });
    futures_util::future::join_all(checks).await;
}

/// Sends the frames after the requested line; `ends` are the borders between them. The first connection is cut.
async fn cutting(bytes: Vec<u8>, ends: Vec<usize>, cut: usize) -> Server {
    Server::raw(move |mut stream, number| {
        let (bytes, ends) = (bytes.clone(), ends.clone());
        async move {
            let head = head(&mut stream).await;
            let after =
                head.split_once("after=").map(|(_, rest)| rest.split('&').next().unwrap().parse().unwrap());
            let from = after.map_or(0, |after: usize| ends[after - 1]);
            let to = if number == 0 { cut } else { bytes.len() };
            stream.write_all(accept(&head).as_bytes()).await.unwrap();
            // The client may hang up as soon as it has the close frame.
            let _ = stream.write_all(&bytes[from..to]).await;
        }
    })
    .await
}
