//! Peers that speak garbage, stall, or cut the connection: everything ends, and everything is a value.

use std::sync::Arc;
use std::time::Duration;

use coder_wire::daemon::{Client, Limits, rpc, serve_stream};
use coder_wire::drpc::frame::{self, Kind};
use coder_wire::drpc::{MAX_MESSAGE_SIZE, Status};
use coder_wire::messages::provisionerd::{FileRequest, UpdateJobRequest};
use coder_wire::mux::frame::{Flags, Header, Kind as MuxKind};
use coder_wire::mux::{Config, Session};
use coder_wire::ws::Socket;
use proptest::prelude::*;
use prost::Message as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use super::harness::{Script, serve_on};

const WAIT_LIMIT: Duration = Duration::from_secs(20);

/// The bytes of a daemon that makes one call over the multiplexer.
fn session_bytes() -> Vec<u8> {
    let mut call = Vec::new();
    let request = UpdateJobRequest { job_id: "job".to_owned(), ..UpdateJobRequest::default() };
    frame::encode(&mut call, Kind::INVOKE, false, (1, 1), rpc::UPDATE_JOB.as_bytes());
    frame::encode(&mut call, Kind::MESSAGE, false, (1, 2), &request.encode_to_vec());
    frame::encode(&mut call, Kind::CLOSE_SEND, false, (1, 3), b"");
    let length = u32::try_from(call.len()).unwrap();
    let mut bytes = Header::new(MuxKind::WindowUpdate, Flags::SYN, 1, 0).encode().to_vec();
    bytes.extend_from_slice(&Header::new(MuxKind::Data, Flags::NONE, 1, length).encode());
    bytes.extend_from_slice(&call);
    bytes.extend_from_slice(&Header::new(MuxKind::WindowUpdate, Flags::FIN, 1, 0).encode());
    bytes
}

#[tokio::test]
async fn a_connection_cut_at_any_byte_ends_its_session() {
    let bytes = session_bytes();
    for cut in 0..=bytes.len() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let serving = serve_on(far, &Script::new(None));
        near.write_all(&bytes[..cut]).await.unwrap();
        drop(near);
        timeout(WAIT_LIMIT, serving).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn an_answer_cut_at_any_byte_ends_the_call() {
    // The response of a server: ACK, Message, CloseSend.
    let mut answer = Vec::new();
    frame::encode(&mut answer, Kind::MESSAGE, false, (1, 1), &[]);
    frame::encode(&mut answer, Kind::CLOSE_SEND, false, (1, 2), &[]);
    let mut bytes = Header::new(MuxKind::WindowUpdate, Flags::ACK, 1, 0).encode().to_vec();
    bytes.extend_from_slice(&Header::new(MuxKind::Data, Flags::NONE, 1, 8).encode());
    bytes.extend_from_slice(&answer);
    for cut in 0..=bytes.len() {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let client = Client::new(Session::client(far, Config::default()));
        near.write_all(&bytes[..cut]).await.unwrap();
        near.shutdown().await.unwrap();
        let result = timeout(WAIT_LIMIT, client.update_job(&UpdateJobRequest::default())).await.unwrap();
        if let Err(error) = result {
            assert!(error.is_retryable(), "cut at {cut}: {error:?}");
            assert!(cut < bytes.len(), "a whole answer counts");
        }
    }
}

#[tokio::test]
async fn a_message_over_the_limit_is_answered_with_an_error() {
    let (near, far) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(serve_stream(Box::new(far), Script::new(None), Limits::default()));
    let mut near = near;
    for (stream, size) in [(1, MAX_MESSAGE_SIZE + 1), (2, 3 * MAX_MESSAGE_SIZE)] {
        let mut bytes = Vec::new();
        frame::encode(&mut bytes, Kind::INVOKE, false, (stream, 1), rpc::UPDATE_JOB.as_bytes());
        frame::encode(&mut bytes, Kind::MESSAGE, false, (stream, 2), &vec![0; size]);
        // It is taken to its end: a caller that is answered while it writes does not see the answer.
        timeout(WAIT_LIMIT, near.write_all(&bytes)).await.unwrap().unwrap();
        let mut received = Vec::new();
        while frame::parse(&received).0.is_empty() {
            assert!(timeout(WAIT_LIMIT, near.read_buf(&mut received)).await.unwrap().unwrap() > 0);
        }
        let packet = &frame::parse(&received).0[0];
        assert_eq!((packet.kind, packet.stream), (Kind::ERROR, stream));
        assert!(Status::decode(&packet.data).text.contains("exceeds the limit of 4194304 bytes"));
    }
    drop(near);
    serving.await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_decode_fails_its_own_call_only() {
    let (mut near, far) = tokio::io::duplex(64 << 10);
    let serving = tokio::spawn(serve_stream(Box::new(far), Script::new(None), Limits::default()));
    let mut bytes = Vec::new();
    for (stream, data) in [(1, &b"\x0a\xff"[..]), (2, b"\x0a\x01\xff"), (3, b"")] {
        frame::encode(&mut bytes, Kind::INVOKE, false, (stream, 1), rpc::UPDATE_JOB.as_bytes());
        frame::encode(&mut bytes, Kind::MESSAGE, false, (stream, 2), data);
    }
    near.write_all(&bytes).await.unwrap();
    let mut received = Vec::new();
    while frame::parse(&received).0.len() < 4 {
        assert!(timeout(WAIT_LIMIT, near.read_buf(&mut received)).await.unwrap().unwrap() > 0);
    }
    let kinds: Vec<_> = frame::parse(&received).0.iter().map(|packet| packet.kind).collect();
    assert_eq!(kinds, [Kind::ERROR, Kind::ERROR, Kind::MESSAGE, Kind::CLOSE_SEND]);
    drop(near);
    serving.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_times_out() {
    for bytes in [&b""[..], &[3, 1], &[3, 1, 1, 2, b'/', b'x', 4, 1, 2, 1, 0]] {
        let (mut near, far) = tokio::io::duplex(64 << 10);
        let serving = tokio::spawn(serve_stream(Box::new(far), Script::new(None), Limits::default()));
        near.write_all(bytes).await.unwrap();
        timeout(3 * Limits::default().io_timeout, serving).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn an_unread_answer_times_out() {
    let (mut near, far) = tokio::io::duplex(1024);
    let serving = tokio::spawn(serve_stream(Box::new(far), Script::new(None), Limits::default()));
    let mut bytes = Vec::new();
    let request = FileRequest { file_id: "100000".to_owned(), ..FileRequest::default() };
    frame::encode(&mut bytes, Kind::INVOKE, false, (1, 1), rpc::DOWNLOAD_FILE.as_bytes());
    frame::encode(&mut bytes, Kind::MESSAGE, false, (1, 2), &request.encode_to_vec());
    near.write_all(&bytes).await.unwrap();
    timeout(2 * Limits::default().io_timeout, serving).await.unwrap().unwrap();
    drop(near);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_times_out() {
    let (mut near, far) = tokio::io::duplex(256);
    let serving = serve_on(far, &Script::new(None));
    let writing = tokio::spawn(async move {
        let mut id = 1;
        while near.write_all(&Header::new(MuxKind::WindowUpdate, Flags::SYN, id, 0).encode()).await.is_ok() {
            id += 2;
        }
    });
    timeout(Duration::from_secs(600), serving).await.unwrap().unwrap();
    writing.await.unwrap();
}

#[tokio::test]
async fn the_number_of_streams_is_bounded() {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let session = Session::server(far, Config::default());
    for index in 0..5000 {
        near.write_all(&Header::new(MuxKind::WindowUpdate, Flags::SYN, 2 * index + 1, 0).encode())
            .await
            .unwrap();
    }
    near.write_all(&Header::new(MuxKind::Ping, Flags::SYN, 0, 9).encode()).await.unwrap();
    let pong = Header::new(MuxKind::Ping, Flags::ACK, 0, 9).encode();
    let mut received = Vec::new();
    while !received.ends_with(&pong) {
        assert!(timeout(WAIT_LIMIT, near.read_buf(&mut received)).await.unwrap().unwrap() > 0);
    }
    assert_eq!(session.open_streams(), 256);
}

/// Random bytes, or a good session with some bytes changed.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let corrupted =
        proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6).prop_map(|changes| {
            let mut bytes = session_bytes();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes
        });
    prop_oneof![proptest::collection::vec(any::<u8>(), 0..600), corrupted]
}

/// Feeds bytes to a server at one layer and waits for its end after the cut.
fn survives(layer: usize, bytes: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        let script = Script::new(None);
        let serving = match layer {
            0 => {
                let session = Session::server(Socket::server(far), Config::default());
                tokio::spawn(async move {
                    session.closed().await;
                })
            }
            1 => {
                let serving = serve_on(far, &script);
                tokio::spawn(async move {
                    serving.await.unwrap();
                })
            }
            _ => tokio::spawn(serve_stream(Box::new(far), Arc::clone(&script), Limits::default())),
        };
        near.write_all(bytes).await.unwrap();
        drop(near);
        timeout(Duration::from_secs(600), serving).await.unwrap().unwrap();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn garbage_at_any_layer_ends(bytes in garbage(), layer in 0..3_usize) {
        survives(layer, &bytes);
    }
}
