//! Peers that follow the protocol and attack the server: they never read, send byte by byte, open and reset streams
//! endlessly, or send very many tags. Each costs little, and other clients are still served.

use std::time::Duration;

use coder_testkit::daemon::FakeDaemon;
use coder_testkit::server::TestServer;
use coder_testkit::wait::WAIT_LIMIT;
use coder_wire::daemon::rpc;
use coder_wire::drpc::frame::{self, Kind};
use coder_wire::messages::provisionerd::UpdateJobRequest;
use coder_wire::mux::frame::{Flags, Header, Kind as MuxKind};
use http::HeaderMap;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::counters::{Counters, PATH, connect, joined, request};
use crate::joins::pass;

/// A WebSocket frame of a client with a mask of zeros, so that its payload stays readable.
fn binary(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x82];
    match u16::try_from(payload.len()).unwrap() {
        length @ ..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&length.to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn header(kind: MuxKind, flags: Flags, stream: u32, length: u32) -> Vec<u8> {
    Header::new(kind, flags, stream, length).encode().to_vec()
}

/// A call without a job, which is answered with an error.
fn nonsense(stream: u64) -> Vec<u8> {
    let request = UpdateJobRequest { job_id: "nonsense".to_owned(), ..UpdateJobRequest::default() };
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, Kind::INVOKE, false, (stream, 1), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut bytes, Kind::MESSAGE, false, (stream, 2), &request.encode_to_vec());
    frame::encode(&mut bytes, Kind::CLOSE_SEND, false, (stream, 3), b"");
    bytes
}

/// Checks that another daemon can join and call.
async fn goes_on(server: &TestServer) {
    let daemon = FakeDaemon::join_with_session(&server.owner, "other").await.unwrap();
    timeout(WAIT_LIMIT, daemon.calls.session().ping()).await.unwrap().unwrap();
    daemon.leave().await;
}

#[tokio::test]
async fn a_client_that_never_reads_is_held_back_and_then_ended() {
    /// The buffers of both sockets, and a small part of the server.
    const MAX_BUFFERED_BYTES: usize = 64 << 20;
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let mut stream = joined(&server, &headers).await;
    let ping = header(MuxKind::Ping, Flags::SYN, 0, 7);
    let flood = binary(&ping.repeat(5000));
    let mut sent = 0;
    // This frame is never completed: from here on the server expects the rest of it.
    while let Ok(count) = timeout(Duration::from_secs(2), stream.write(&flood[sent % flood.len()..])).await {
        sent += count.unwrap();
        assert!(sent < MAX_BUFFERED_BYTES, "{sent} bytes were taken from a client that reads nothing");
    }
    goes_on(&server).await;
    let mut passed = Duration::ZERO;
    while !server.handle.app.scheduler.connected().is_empty() {
        assert!(passed < Duration::from_secs(100), "it is still there after {passed:?}");
        pass(&server, Duration::from_secs(5)).await;
        passed += Duration::from_secs(5);
    }
    goes_on(&server).await;
    drop(stream);
    for _ in 0..4 {
        pass(&server, Duration::from_secs(5)).await;
    }
    before.restored(&server, "after a client that never read").await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_join_and_a_call_byte_by_byte_are_served() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    let mut head = format!(
        "GET {PATH} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    );
    for (name, value) in &headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    let call = nonsense(1);
    let length = u32::try_from(call.len()).unwrap();
    let frames = [header(MuxKind::Data, Flags::SYN, 1, length), call].concat();
    let mut stream = connect(&server).await;
    for byte in [(head + "\r\n").as_bytes(), &binary(&frames)].concat() {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut got = Vec::new();
    let answered = async {
        while !got.windows(12).any(|words: &[u8]| words == b"not a job id") {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{}", String::from_utf8_lossy(&got));
        }
    };
    timeout(WAIT_LIMIT, answered).await.unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn streams_opened_and_reset_without_end_leave_nothing() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let stream = joined(&server, &headers).await;
    let (mut reader, mut writer) = stream.into_split();
    let reading = tokio::spawn(async move {
        let pong = header(MuxKind::Ping, Flags::ACK, 0, 9);
        let mut got = Vec::new();
        while !got.windows(12).any(|words: &[u8]| words == pong) {
            let kept = got.len().saturating_sub(12);
            got.drain(..kept);
            assert!(reader.read_buf(&mut got).await.unwrap() > 0, "the session goes on");
        }
        reader
    });
    for index in 0..20_000_u32 {
        let id = 2 * index + 1;
        let mut bytes = header(MuxKind::WindowUpdate, Flags::SYN, id, 0);
        // Half of them with a running call, and one in eight with a huge credit first.
        if index % 2 == 0 {
            let call = nonsense(1);
            bytes.extend(header(MuxKind::Data, Flags::NONE, id, u32::try_from(call.len()).unwrap()));
            bytes.extend(call);
        }
        if index % 8 == 0 {
            bytes.extend(header(MuxKind::WindowUpdate, Flags::NONE, id, u32::MAX).repeat(3));
        }
        bytes.extend(header(MuxKind::WindowUpdate, Flags::RST, id, 0));
        writer.write_all(&binary(&bytes)).await.unwrap();
    }
    writer.write_all(&binary(&header(MuxKind::Ping, Flags::SYN, 0, 9))).await.unwrap();
    let reader = timeout(WAIT_LIMIT, reading).await.unwrap().unwrap();
    goes_on(&server).await;
    drop((reader, writer));
    before.restored(&server, "after streams opened and reset").await;
    server.stop().await.unwrap();
}

/// The status of the response to a request; none when the connection was closed before.
async fn status(mut stream: TcpStream, headers: &HeaderMap, first: &str, body: &str) -> Option<u16> {
    let mut head =
        format!("{first} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {}\r\n", value.to_str().unwrap());
    }
    let (mut reader, mut writer) = stream.split();
    let writing = async {
        // A refusal may come before the end of the request.
        let _ = writer.write_all((head + "\r\n" + body).as_bytes()).await;
    };
    let mut answer = Vec::new();
    let reading = async { drop(reader.read_to_end(&mut answer).await) };
    timeout(WAIT_LIMIT, async { tokio::join!(writing, reading) }).await.unwrap();
    let text = String::from_utf8_lossy(&answer).into_owned();
    text.split(' ').nth(1).and_then(|code| code.parse().ok())
}

#[tokio::test]
async fn a_hundred_thousand_tags_are_refused_everywhere() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    let pairs: Vec<_> = (0..100_000).map(|n| format!("\"k{n}\":\"v\"")).collect();
    let tags = format!("{{{}}}", pairs.join(","));
    let organization = "/api/v2/organizations/default";
    for (path, body) in [
        ("provisionerkeys", format!("{{\"name\":\"k\",\"tags\":{tags}}}")),
        (
            "templateversions",
            format!("{{\"storage_method\":\"file\",\"provisioner\":\"terraform\",\"tags\":{tags}}}"),
        ),
    ] {
        let first = format!("POST {organization}/{path}");
        let code = status(connect(&server).await, &headers, &first, &body).await;
        assert!(matches!(code, Some(400 | 413)), "{path}: {code:?}");
    }
    for path in [PATH, "/api/v2/organizations/default/provisionerjobs?limit=1"] {
        let many: String = (0..100_000).map(|n| format!("&tag=k{n}%3Dv&tags=k{n}")).collect();
        let code = status(connect(&server).await, &headers, &format!("GET {path}{many}"), "").await;
        assert!(matches!(code, None | Some(400 | 414 | 431)), "{path}: {code:?}");
    }
    goes_on(&server).await;
    server.stop().await.unwrap();
}
