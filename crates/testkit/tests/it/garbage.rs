//! Peers that have joined over a real socket and then violate a rule of one layer, or announce data that never comes.
//! Only the affected connection or call ends; other clients are still served.

use std::process::Command;

use coder_testkit::daemon::FakeDaemon;
use coder_testkit::server::TestServer;
use coder_testkit::wait::WAIT_LIMIT;
use coder_wire::daemon::{Client, rpc};
use coder_wire::drpc::frame::{self, Kind};
use coder_wire::drpc::{MAX_MESSAGE_SIZE, Status};
use coder_wire::messages::provisionerd::{CompletedJob, UpdateJobRequest, completed_job};
use coder_wire::mux::frame::{Flags, Header, Kind as MuxKind};
use coder_wire::mux::{Config, Session};
use coder_wire::ws::Socket;
use http::HeaderMap;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::counters::{Counters, joined, request};

/// Bytes in one masked frame of a WebSocket client; the mask is zero, so that they stay readable.
fn binary(payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).ok().filter(|length| *length < 126).unwrap();
    [&[0x82, 0x80 | length, 0, 0, 0, 0], payload].concat()
}

async fn read_to_end(mut stream: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A closed connection may end with a reset.
    let _ =
        timeout(WAIT_LIMIT, stream.read_to_end(&mut bytes)).await.expect("the server ends the connection");
    bytes
}

/// Checks that another daemon can join and call.
async fn goes_on(server: &TestServer) {
    let daemon = FakeDaemon::join_with_session(&server.owner, "other").await.unwrap();
    answers(&daemon.calls).await;
    daemon.leave().await;
}

/// Checks that calls on this session are answered.
async fn answers(calls: &Client) {
    let request = UpdateJobRequest { job_id: "nonsense".to_owned(), ..UpdateJobRequest::default() };
    let refusal = timeout(WAIT_LIMIT, calls.update_job(&request)).await.unwrap().unwrap_err().to_string();
    assert!(refusal.contains("not a job id"), "{refusal}");
}

#[tokio::test]
async fn broken_websocket_frames_are_answered_with_a_close_code() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let cases: [(&str, &[u8], u16); 9] = [
        ("no mask", &[0x82, 1, 0], 1002),
        ("a reserved bit", &[0xc2, 0x80, 0, 0, 0, 0], 1002),
        ("text", &[0x81, 0x80, 0, 0, 0, 0], 1003),
        ("a continuation of nothing", &[0x80, 0x80, 0, 0, 0, 0], 1002),
        ("a message in a message", &[0x02, 0x80, 0, 0, 0, 0, 0x82, 0x80, 0, 0, 0, 0], 1002),
        ("a fragmented ping", &[0x09, 0x80, 0, 0, 0, 0], 1002),
        ("a ping of 126 bytes", &[0x89, 0x80 | 126, 0, 126, 0, 0, 0, 0], 1002),
        ("an unknown operation", &[0x83, 0x80, 0, 0, 0, 0], 1002),
        ("a negative length", &[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 1002),
    ];
    for (what, bytes, code) in cases {
        let mut stream = joined(&server, &headers).await;
        stream.write_all(bytes).await.unwrap();
        let answer = read_to_end(stream).await;
        let want = [&[0x88, 2][..], &code.to_be_bytes()].concat();
        assert_eq!(answer, want, "{what}");
        before.restored(&server, what).await;
    }
    goes_on(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn broken_multiplexer_frames_end_the_session() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let header = |kind, flags, stream, length| Header::new(kind, flags, stream, length).encode().to_vec();
    let opened = header(MuxKind::WindowUpdate, Flags::SYN, 1, 0);
    let cases = [
        ("an unknown version", vec![1; 12]),
        ("an unknown type", vec![0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("a stream of our parity", header(MuxKind::WindowUpdate, Flags::SYN, 2, 0)),
        ("a stream opened twice", [opened.clone(), opened.clone()].concat()),
        (
            "more data than there is credit for",
            [opened, header(MuxKind::Data, Flags::NONE, 1, u32::MAX)].concat(),
        ),
    ];
    for (what, bytes) in cases {
        let mut stream = joined(&server, &headers).await;
        stream.write_all(&binary(&bytes)).await.unwrap();
        let mut answer = Vec::new();
        let mut socket = Socket::client(stream);
        let _ =
            timeout(WAIT_LIMIT, socket.read_to_end(&mut answer)).await.expect("the server ends the session");
        let end = header(MuxKind::GoAway, Flags::NONE, 0, 1);
        assert!(answer.ends_with(&end), "{what}: the last word is that there was an error: {answer:?}");
        drop(socket);
        before.restored(&server, what).await;
    }
    goes_on(&server).await;
    server.stop().await.unwrap();
}

/// A session with a valid multiplexer. Its streams carry the bytes of the test.
async fn session(server: &TestServer, headers: &HeaderMap) -> Session {
    Session::client(Socket::client(joined(server, headers).await), Config::default())
}

/// Sends bytes on a new stream. Returns the error text of the response, or none when the stream only ends.
async fn said(session: &Session, bytes: &[u8]) -> Option<String> {
    let mut stream = session.open().await.unwrap();
    let talk = async {
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let answer = timeout(WAIT_LIMIT, talk).await.expect("the server ends the stream");
    let packets = frame::parse(&answer).0;
    let error = packets.iter().find(|packet| packet.kind == Kind::ERROR)?;
    Some(Status::decode(&error.data).text)
}

fn call(name: &str, message: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::encode(&mut bytes, Kind::INVOKE, false, (1, 1), name.as_bytes());
    frame::encode(&mut bytes, Kind::MESSAGE, false, (1, 2), message);
    frame::encode(&mut bytes, Kind::CLOSE_SEND, false, (1, 3), b"");
    bytes
}

#[tokio::test]
async fn a_broken_call_spoils_itself_only() {
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let session = session(&server, &headers).await;
    let calls = Client::new(session.clone());
    let mut no_invoke = Vec::new();
    frame::encode(&mut no_invoke, Kind::MESSAGE, false, (1, 1), b"x");
    let mut backwards = call(rpc::UPDATE_JOB, b"");
    frame::encode(&mut backwards, Kind::MESSAGE, false, (0, 1), b"x");
    let too_long = call(rpc::UPDATE_JOB, &vec![0; MAX_MESSAGE_SIZE + 1]);
    let cases: [(&str, &[u8], &str); 8] = [
        ("an endless number", &[0xff; 64], ""),
        ("a packet without a call", &no_invoke, ""),
        ("numbers that go backwards", &backwards, ""),
        ("a name that is not text", &call("\u{fffd}", b""), "unknown call"),
        ("an unknown call", &call("/provisionerd.ProvisionerDaemon/Steal", b""), "unknown call"),
        ("a message that is cut short", &call(rpc::UPDATE_JOB, b"\x0a\xff"), "decode"),
        ("a message with a wrong wire type", &call(rpc::COMPLETE_JOB, b"\x0f"), "decode"),
        ("a message over the limit", &too_long, "exceeds the limit of 4194304 bytes"),
    ];
    for (what, bytes, words) in cases {
        let text = said(&session, bytes).await;
        assert!(
            words.is_empty() || text.as_ref().is_some_and(|text| text.contains(words)),
            "{what}: {text:?}"
        );
        answers(&calls).await;
    }
    // Valid protobuf with invalid content.
    for (job_id, words) in
        [("", "not a job id"), ("\u{1}", "not a job id"), (&"x".repeat(9000), "not a job id")]
    {
        let request = CompletedJob {
            job_id: job_id.to_owned(),
            r#type: Some(completed_job::Type::TemplateDryRun(completed_job::TemplateDryRun::default())),
        };
        let text = said(&session, &call(rpc::COMPLETE_JOB, &request.encode_to_vec())).await.unwrap();
        assert!(text.contains(words) && text.len() < 1000, "{text}");
    }
    goes_on(&server).await;
    drop(calls);
    session.close().await;
    drop(session);
    before.restored(&server, "after broken calls").await;
    server.stop().await.unwrap();
}

const CHILD: &str = "CODER_TESTKIT_GARBAGE";

/// Resident bytes of this process.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Measured in a separate process, where nothing else runs.
#[tokio::test]
async fn huge_announced_lengths_cost_nothing() {
    const CONNECTIONS_PER_KIND: usize = 100;
    const LIMIT: usize = 64 << 10;
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let args = ["--exact", "garbage::huge_announced_lengths_cost_nothing", "--nocapture"];
        let output = child.args(args).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let server = TestServer::start().await.unwrap();
    let (_, headers) = request(&server).await;
    goes_on(&server).await;
    let before = Counters::at_rest(&server).await;
    let header = |kind, flags, length| Header::new(kind, flags, 1, length).encode().to_vec();
    let window = header(MuxKind::Data, Flags::SYN, 256 << 10);
    // The header of a packet of a call with a length of 2^62.
    let packet = [&[0x03, 1, 1][..], &[0xff; 8], &[0x3f]].concat();
    let call = header(MuxKind::Data, Flags::SYN, u32::try_from(packet.len()).unwrap());
    let announcements = [
        // WebSocket: a frame of 2^62 bytes.
        [&[0x82, 0xff, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0; 4]].concat(),
        // Multiplexer: as much data as there is credit for.
        binary(&window),
        // Call: a packet of 2^62 bytes.
        binary(&[call, packet].concat()),
    ];
    let mut peers: Vec<TcpStream> = Vec::new();
    let open = async |peers: &mut Vec<TcpStream>, count| {
        for announcement in &announcements {
            for _ in 0..count {
                let mut stream = joined(&server, &headers).await;
                stream.write_all(announcement).await.unwrap();
                peers.push(stream);
            }
        }
        goes_on(&server).await;
    };
    open(&mut peers, 5).await;
    let at_first = resident();
    open(&mut peers, CONNECTIONS_PER_KIND).await;
    let growth = resident().saturating_sub(at_first);
    let each = growth / (CONNECTIONS_PER_KIND * announcements.len());
    assert!(each < LIMIT, "{each} bytes for a connection");
    drop(peers);
    before.restored(&server, "after announcements").await;
    server.stop().await.unwrap();
}
